import type { Action } from 'svelte/action';

const ITEM = '[data-list-item]:not(:disabled)';

/** Up and Down move through the items of a list, Left and Right through the buttons of an item; Home and End go to the ends. */
export function moveInList(event: KeyboardEvent): void {
  const target = event.target as HTMLElement;
  if (event.ctrlKey || event.metaKey || event.altKey || !target.matches(`${ITEM}, ${ITEM} ~ * button`)) return;
  const item = target.matches(ITEM) ? target : target.closest('*:has(> [data-list-item])')?.querySelector<HTMLElement>(ITEM);
  if (!item) return;
  const to = aside(event.key, target, item) ?? along(event.key, event.currentTarget as HTMLElement, item);
  if (!to) return;
  event.preventDefault();
  to.focus();
}

function along(key: string, list: HTMLElement, item: HTMLElement): HTMLElement | undefined {
  const items = [...list.querySelectorAll<HTMLElement>(ITEM)];
  const at = items.indexOf(item);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[key];
  return to === undefined ? undefined : items[Math.min(Math.max(to, 0), items.length - 1)];
}

function aside(key: string, target: HTMLElement, item: HTMLElement): HTMLElement | undefined {
  const row = [item, ...(item.parentElement?.querySelectorAll<HTMLElement>(`${ITEM} ~ * button`) ?? [])];
  const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
  if (step === undefined || row.length === 1) return undefined;
  const forward = getComputedStyle(item).direction === 'rtl' ? -step : step;
  return row[row.indexOf(target) + forward] ?? target;
}

/** Roving tabindex: the list is one Tab stop, at the item last focused, else the current one, else the first. */
export const roving: Action<HTMLElement> = (node) => {
  let last: HTMLElement | null = null;
  const settle = () => {
    const items = [...node.querySelectorAll<HTMLElement>(ITEM)];
    const stop = items.find((item) => item === last) ?? items.find((item) => item.getAttribute('aria-current') === 'page') ?? items[0];
    for (const item of items) if (item.tabIndex !== (item === stop ? 0 : -1)) item.tabIndex = item === stop ? 0 : -1;
  };
  const onFocus = (event: FocusEvent) => {
    const item = (event.target as HTMLElement).closest<HTMLElement>(ITEM);
    if (!item) return;
    last = item;
    settle();
  };
  const observer = new MutationObserver(settle);
  observer.observe(node, { childList: true, subtree: true, attributes: true, attributeFilter: ['aria-current'] });
  node.addEventListener('focusin', onFocus);
  settle();
  return {
    destroy() {
      observer.disconnect();
      node.removeEventListener('focusin', onFocus);
    },
  };
};
