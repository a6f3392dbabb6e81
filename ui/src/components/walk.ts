// Keyboard navigation between the parts of the window and between messages.
import type { App } from '../state/app.svelte';

const PARTS = ['conversations', 'messages', 'composer', 'settings'];
/** The element that gets the focus in a part: the first of these that exists. */
const INSIDE = ['[data-list-item][tabindex="0"]', 'textarea', 'input', 'button'];

/** F6 moves the focus to the next part of the window, Shift+F6 to the previous one. */
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

/** Alt+Up and Alt+Down move the focus to the previous or next message; from outside the messages, to the last one. */
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
