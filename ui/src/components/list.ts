/** Arrow keys walk through the items of a list; Home and End go to its ends. */
export function moveInList(event: KeyboardEvent): void {
  const target = event.target as HTMLElement;
  if (!target.matches('[data-list-item]')) return;
  const items = [...(event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>('[data-list-item]:not(:disabled)')];
  const at = items.indexOf(target);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  items[Math.min(Math.max(to, 0), items.length - 1)]?.focus();
}
