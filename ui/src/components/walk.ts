// Ways through the window for who uses no pointer: from part to part, and from message to message.
import type { App } from '../state/app.svelte';

const PARTS = ['conversations', 'messages', 'composer', 'settings'];
/** Where the focus goes in a part, in this order. */
const INSIDE = ['[data-list-item][tabindex="0"]', 'textarea', 'input', 'button'];

/** F6 goes to the next part of the window, with Shift to the one before. */
export function walkParts(event: KeyboardEvent): boolean {
  if (event.key !== 'F6') return false;
  const parts = PARTS.flatMap((name) => document.querySelector<HTMLElement>(`[data-part="${name}"]`) ?? []);
  const at = parts.findIndex((part) => part.contains(document.activeElement));
  const step = event.shiftKey ? -1 : 1;
  const next = parts.at((at === -1 ? (step > 0 ? 0 : -1) : at + step) % parts.length);
  const inside = next?.matches('[tabindex="0"]') ? next : INSIDE.map((selector) => next?.querySelector<HTMLElement>(selector)).find(Boolean);
  inside?.focus();
  return inside !== undefined;
}

/** Alt with an arrow goes to the message before or after the one that has the focus; from elsewhere, to the last. */
export function walkMessages(event: KeyboardEvent, app: App): boolean {
  const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  const chat = app.open;
  if (!event.altKey || event.ctrlKey || event.metaKey || step === undefined || !chat || chat.rows.length === 0) return false;
  const id = document.activeElement?.closest<HTMLElement>('[data-testid="message"]')?.dataset.id;
  const at = id === undefined ? chat.rows.length : chat.rows.findIndex((row) => row.message.id === id);
  const to = chat.rows[at + step];
  if (to) chat.reveal = { id: to.message.id, focus: true };
  else if (step > 0) document.querySelector<HTMLElement>('[data-testid="composer"]')?.focus();
  return true;
}
