import { tick } from 'svelte';
import type { App } from '../state/app.svelte';

/** The keys that work anywhere in the window. */
export function handleShortcut(event: KeyboardEvent, app: App): void {
  if (event.defaultPrevented || event.isComposing) return;
  const command = event.ctrlKey || event.metaKey;
  if (event.key === 'Escape') return escape(event, app);
  if (!command || event.altKey) return;
  const run = SHORTCUTS[event.key.toLowerCase()];
  if (!run || event.shiftKey) return;
  if (run(app) !== false) event.preventDefault();
}

const SHORTCUTS: Record<string, (app: App) => boolean | void> = {
  n: (app) => {
    app.newConversation();
    if (app.narrow) app.sidebarOpen = false;
    void focusOn('composer');
  },
  k: (app) => {
    app.sidebarOpen = true;
    void focusOn('search');
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

function escape(event: KeyboardEvent, app: App): void {
  const chat = app.open;
  if (app.narrow && app.sidebarOpen) app.sidebarOpen = false;
  else if (chat?.edit) chat.closeEdit();
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
