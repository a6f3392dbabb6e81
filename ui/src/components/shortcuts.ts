import { tick } from 'svelte';
import type { App } from '../state/app.svelte';
import { walkMessages, walkParts } from './walk';

/** The keys that work anywhere in the window. */
export function handleShortcut(event: KeyboardEvent, app: App): void {
  if (event.defaultPrevented) return;
  const command = event.ctrlKey || event.metaKey;
  if (event.key === 'Escape') return escape(event, app);
  if (walkParts(event) || walkMessages(event, app)) return event.preventDefault();
  const key = event.key.toLowerCase();
  // The window would be made anew, and with it what is written in it.
  if ((event.key === 'F5' || (command && key === 'r')) && app.holdsWords) return event.preventDefault();
  if (isText(event, command) && !takesText(document.activeElement)) composer()?.focus({ preventScroll: true });
  if (event.key === 'F3' && app.find.open) {
    app.find.step(event.shiftKey ? -1 : 1);
    return event.preventDefault();
  }
  if (!command || event.altKey) return;
  if (zoom(key, app)) return event.preventDefault();
  const run = event.shiftKey ? SHIFTED[key] : SHORTCUTS[key];
  if (!run) return;
  if (run(app) !== false) event.preventDefault();
}

const SHORTCUTS: Record<string, (app: App) => boolean | void> = {
  n: (app) => {
    app.newConversation();
    if (app.narrow) app.sidebarOpen = false;
    void focusOn('composer');
  },
  k: search,
  // The page holds no more of a conversation than is seen of it: what looks through the page would not find the rest.
  f: (app) => {
    if (!app.open) return search(app);
    app.find.begin();
    void focusOn('find');
  },
  b: (app) => {
    app.sidebarOpen = !app.sidebarOpen;
  },
  ',': (app) => {
    app.settingsOpen = !app.settingsOpen;
    void focusOn(app.settingsOpen ? 'system-prompt' : 'composer');
  },
  // In a text field Ctrl+Z belongs to the text.
  z: (app) => !isTyping() && app.toasts.actOnNewest(),
};

const SHIFTED: Record<string, (app: App) => boolean | void> = { f: search };

/** Compares the character only: its position and modifiers differ by keyboard layout. */
function zoom(key: string, app: App): boolean {
  if (key === '+' || key === '=') app.zoom.larger();
  else if (key === '-' || key === '_') app.zoom.smaller();
  else if (key === '0') app.zoom.reset();
  else return false;
  return true;
}

/** What the keys do, for those who want to know. */
export const KEYS: readonly (readonly [keys: string, what: string])[] = [
  ['Ctrl N', 'New conversation'],
  ['Ctrl K', 'Search all conversations, also Ctrl Shift F'],
  ['Ctrl F', 'Find in this conversation'],
  ['Ctrl B', 'Show or hide the sidebar'],
  ['Ctrl ,', 'Settings'],
  ['Ctrl + − 0', 'Larger, smaller or usual text'],
  ['Ctrl Z', 'Undo what was deleted'],
  ['Esc', 'Stop the reply, or one step back'],
  ['↑', 'Edit your last message, from an empty field'],
  ['Ctrl Enter', 'Save an edited reply'],
  ['← →', 'Turn to another branch, on its arrows'],
  ['Alt ↑ ↓', 'To the message before or after'],
  ['F6', 'To the next part of the window'],
  ['Shift F10', 'The menu of what has the focus'],
  ['F2, Del', 'Rename or delete, in the list'],
];

function search(app: App): void {
  app.sidebarOpen = true;
  void focusOn('search');
}

/** A letter, or what is pasted; a space presses buttons and turns pages. */
function isText(event: KeyboardEvent, command: boolean): boolean {
  if (event.altKey) return false;
  return command ? event.key.toLowerCase() === 'v' : event.key.length === 1 && event.key !== ' ';
}

function takesText(element: Element | null): boolean {
  return element?.closest('input, textarea, select, [role="dialog"], [role="menu"]') != null;
}

function composer(): HTMLElement | null {
  return document.querySelector<HTMLElement>('[data-testid="composer"]');
}

function escape(event: KeyboardEvent, app: App): void {
  const chat = app.open;
  if (app.narrow && app.sidebarOpen) app.sidebarOpen = false;
  else if (chat?.edit) chat.closeEdit();
  else if (app.find.open) app.find.close();
  else if (app.settingsOpen) app.settingsOpen = false;
  else if (chat?.streaming) void chat.stop();
  else return;
  event.preventDefault();
  void focusOn('composer');
}

export async function focusOn(testId: string): Promise<void> {
  await tick();
  const element = document.querySelector<HTMLElement>(`[data-testid="${testId}"]`);
  element?.focus();
  if (element instanceof HTMLInputElement) element.select();
}

function isTyping(): boolean {
  const active = document.activeElement;
  return (active instanceof HTMLTextAreaElement || active instanceof HTMLInputElement) && active.value !== '';
}
