import { fireEvent, render, screen, waitFor } from '@testing-library/svelte';
import { expect, test, vi } from 'vitest';
import { FakeBackend } from '../../src/backend/fake/fake';
import { parseOptions } from '../../src/backend/fake/options';
import Root from '../../src/components/Root.svelte';
import { App } from '../../src/state/app.svelte';
import { menuOf, type Pointed } from '../../src/state/menu.svelte';

const NOTHING: Pointed = { field: null, link: null, selection: '', message: null, conversation: null, streaming: false };
const commands = (pointed: Partial<Pointed>) =>
  menuOf({ ...NOTHING, ...pointed })
    .flat()
    .filter((item) => !item.disabled)
    .map((item) => item.command);

async function show(options = 'fast'): Promise<App> {
  const app = new App(new FakeBackend(parseOptions(options)));
  render(Root, { app });
  await waitFor(() => expect(app.ready).toBe(true));
  return app;
}

const shown = () => screen.queryAllByRole('menuitem').map((item) => item.dataset.command);

test('a menu offers what can be done where it was asked for', () => {
  expect(commands({})).toEqual([]);
  const reply = { id: 'm', role: 'assistant', text: 'Bread.', continues: false } as const;
  expect(commands({ message: reply })).toEqual(['copy-message', 'edit', 'regenerate']);
  expect(commands({ message: { ...reply, continues: true } })).toContain('continue');
  expect(commands({ message: reply, streaming: true })).toEqual(['copy-message']);
  expect(commands({ message: { ...reply, role: 'user' } })).toEqual(['copy-message', 'edit']);
  expect(commands({ message: reply, selection: 'Br' }).slice(0, 2)).toEqual(['copy-selection', 'copy-message']);
  expect(commands({ message: reply, link: 'https://example.org/' }).slice(0, 2)).toEqual(['open-link', 'copy-link']);
  expect(commands({ conversation: 'c' })).toEqual(['open', 'rename', 'copy-markdown', 'save-markdown', 'save-json', 'delete']);
  expect(commands({ field: { text: '', marked: false, readOnly: false } })).toEqual(['paste']);
  expect(commands({ field: { text: 'x', marked: true, readOnly: false } })).toEqual(['cut', 'copy', 'paste', 'select-all']);
  expect(commands({ field: { text: 'x', marked: true, readOnly: true } })).toEqual(['copy', 'select-all']);
});

test('the webview never shows its own menu, wherever one is asked for', async () => {
  await show();
  for (const element of document.querySelectorAll('body *')) {
    const event = new MouseEvent('contextmenu', { bubbles: true, cancelable: true });
    element.dispatchEvent(event);
    expect(event.defaultPrevented, element.outerHTML.slice(0, 80)).toBe(true);
  }
});

test('a conversation is renamed and deleted from its menu', async () => {
  const app = await show();
  const [first] = app.conversations;
  const item = () => document.querySelector<HTMLElement>(`[data-testid="conversation-item"][data-id="${first.id}"]`);
  await fireEvent.contextMenu(item() as HTMLElement);
  expect(shown()).toEqual(['open', 'rename', 'copy-markdown', 'save-markdown', 'save-json', 'delete']);
  await fireEvent.click(screen.getByText('Rename'));
  const name = await screen.findByLabelText<HTMLInputElement>('Title');
  await fireEvent.input(name, { target: { value: 'Bread' } });
  await fireEvent.keyDown(name, { key: 'Enter' });
  await waitFor(() => expect(app.conversations.find(({ id }) => id === first.id)?.title).toBe('Bread'));
  await fireEvent.contextMenu(item() as HTMLElement);
  await fireEvent.click(screen.getByText('Delete'));
  await waitFor(() => expect(item()).toBeNull());
  expect(app.conversations.some(({ id }) => id === first.id)).toBe(false);
});

test('a link in a reply is opened and its address copied from its menu', async () => {
  const app = await show();
  await app.openConversation(app.conversations[0].id);
  const article = await waitFor(() => document.querySelector('article.message.assistant') as HTMLElement);
  const link = document.createElement('a');
  link.dataset.link = 'https://example.org/bread';
  article.append(link);
  await fireEvent.contextMenu(link);
  expect(shown().slice(0, 3)).toEqual(['open-link', 'copy-link', 'copy-message']);
  const opened = vi.spyOn(app.backend, 'openLink');
  await fireEvent.click(screen.getByText('Open the link'));
  await waitFor(() => expect(opened).toHaveBeenCalledWith('https://example.org/bread'));
});

test('a key opens the menu of what has the focus, Escape closes it, and the focus comes home', async () => {
  await show();
  const composer = screen.getByTestId<HTMLTextAreaElement>('composer');
  composer.focus();
  await fireEvent.keyDown(composer, { key: 'F10', shiftKey: true });
  expect(shown()).toEqual(['cut', 'copy', 'paste', 'select-all']);
  expect((document.activeElement as HTMLElement).dataset.command).toBe('paste');
  // The webview then sends its own `contextmenu` event to the focused element.
  await fireEvent.contextMenu(document.activeElement as HTMLElement);
  expect(shown()).toEqual(['cut', 'copy', 'paste', 'select-all']);
  await fireEvent.keyDown(document.activeElement as HTMLElement, { key: 'Escape' });
  await waitFor(() => expect(shown()).toEqual([]));
  expect(document.activeElement).toBe(composer);
});

test('a clipboard that cannot be read from a menu is said', async () => {
  const app = await show();
  vi.spyOn(navigator.clipboard, 'readText').mockRejectedValue(new Error('no'));
  await fireEvent.contextMenu(screen.getByTestId('composer'));
  await fireEvent.click(screen.getByText('Paste'));
  await waitFor(() => expect(app.toasts.list.at(-1)?.text).toMatch(/Ctrl V/));
  vi.restoreAllMocks();
});
