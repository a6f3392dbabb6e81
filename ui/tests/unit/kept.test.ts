import { flushSync } from 'svelte';
import { expect, test, vi } from 'vitest';
import { FakeBackend } from '../../src/backend/fake/fake';
import { parseOptions } from '../../src/backend/fake/options';
import { App } from '../../src/state/app.svelte';
import type { Chat } from '../../src/state/chat.svelte';

async function start(options = 'fast'): Promise<{ app: App; backend: FakeBackend; chat: Chat }> {
  const backend = new FakeBackend(parseOptions(options));
  const app = new App(backend);
  await app.start();
  await app.openConversation(app.conversations[0].id);
  return { app, backend, chat: app.open as Chat };
}

const lastOfPerson = (chat: Chat) => chat.rows.findLast((row) => row.message.role === 'user')!.message;

test('what was typed while a message was refused stands after it', async () => {
  const { app, chat } = await start('error:storage');
  app.write('The first.');
  const sending = app.send();
  app.write('The second.');
  await sending;
  expect(chat.words.draft).toBe('The first.\n\nThe second.');
});

test('a message that was stopped before it was stored goes back to the composer', async () => {
  const { app, backend, chat } = await start();
  vi.spyOn(backend, 'sendMessage').mockImplementation(async (_id, _parent, _text, onEvent) => onEvent({ event: 'error', code: 'stopped', message: '' }));
  app.write('Not yet.');
  await app.send();
  expect(chat.words.draft).toBe('Not yet.');
});

test('a message that was stored is not written into the composer again', async () => {
  const { app, chat } = await start('break:internal');
  app.write('Tell me about bread.');
  await app.send();
  expect(chat.problem?.code).toBe('internal');
  expect(chat.words.draft).toBe('');
});

test('what is typed while a conversation is made is the next message', async () => {
  const { app } = await start();
  app.newConversation();
  app.write('brief');
  const sending = app.send();
  app.write('brief and then');
  await vi.waitFor(() => expect(app.open?.rows.length).toBe(2));
  expect(app.draft).toBe(' and then');
  await sending;
});

test('an edit keeps its words until they are sent or given up', async () => {
  const { app, chat } = await start();
  const message = lastOfPerson(chat);
  chat.startEdit(message);
  chat.edit?.write('Other words.');
  chat.closeEdit();
  chat.startEdit(message);
  expect(chat.edit?.text).toBe('Other words.');
  chat.startEdit(chat.rows[1].message);
  expect([...chat.words.edits.values()]).toEqual(['Other words.']);
  app.write('brief');
  await app.send();
  expect(chat.words.edits.get(message.id)).toBe('Other words.');
  chat.startEdit(message);
  app.discardEdit(chat);
  chat.startEdit(message);
  expect(chat.edit?.text).toBe(message.text);
  app.toasts.actOnNewest();
  expect(chat.edit?.text).toBe('Other words.');
  await chat.saveEdit();
  flushSync();
  expect(chat.words.edits.size).toBe(0);
  expect(lastOfPerson(chat).text).toBe('Other words.');
});

test('an edit that changed nothing leaves nothing', async () => {
  const { app, chat } = await start();
  chat.startEditLast();
  app.discardEdit(chat);
  expect(chat.words.edits.size).toBe(0);
  expect(app.toasts.list).toEqual([]);
});

test('a conversation that is deleted and brought back has its draft and its edits', async () => {
  const { app, chat } = await start();
  app.write('A draft.');
  chat.startEditLast();
  chat.edit?.write('Other words.');
  await app.remove(chat.id);
  app.toasts.actOnNewest();
  await vi.waitFor(() => expect(app.open?.id).toBe(chat.id));
  expect(app.draft).toBe('A draft.');
  expect([...(app.open as Chat).words.edits.values()]).toEqual(['Other words.']);
});

/** What another window over the same history shows. */
async function nextWindow(app: App): Promise<App> {
  await app.unsent.keep();
  const next = new App(app.backend);
  await next.start();
  return next;
}

test('the next window has what was not sent, each where it was written', async () => {
  const { app, chat } = await start();
  const [, other] = app.conversations;
  app.write('A thought.');
  const message = lastOfPerson(chat);
  chat.startEdit(message);
  chat.edit?.write('Other words.');
  await app.openConversation(other.id);
  app.write('Elsewhere.');
  app.newConversation();
  app.write('A beginning.');
  const next = await nextWindow(app);
  expect(next.draft).toBe('A beginning.');
  expect(next.conversations.filter((one) => next.hasUnsent(one.id)).map((one) => one.id)).toEqual([chat.id, other.id]);
  await next.openConversation(chat.id);
  expect(next.draft).toBe('A thought.');
  const again = next.open as Chat;
  expect(again.words.edits.get(message.id)).toBe('Other words.');
  again.startEdit(lastOfPerson(again));
  expect(again.edit?.text).toBe('Other words.');
  expect(next.hasUnsent(other.id)).toBe(true);
  await next.openConversation(other.id);
  expect(next.draft).toBe('Elsewhere.');
});

test('the next window has nothing of what was sent, cleared or given up', async () => {
  const { app, chat } = await start();
  app.write('brief');
  await app.unsent.keep();
  await app.send();
  app.write('Cleared.');
  await app.unsent.keep();
  app.write('');
  chat.startEditLast();
  chat.edit?.write('Given up.');
  await app.unsent.keep();
  app.discardEdit(chat);
  chat.startEditLast();
  chat.edit?.write('Sent.');
  await app.unsent.keep();
  await chat.saveEdit();
  app.newConversation();
  app.write('brief');
  await app.send();
  const next = await nextWindow(app);
  expect(next.draft).toBe('');
  expect(next.conversations.filter((one) => next.hasUnsent(one.id))).toEqual([]);
});

test('a message that was refused is kept like any other words', async () => {
  const { app, chat } = await start('error:storage');
  app.write('Not yet.');
  await app.send();
  const next = await nextWindow(app);
  await next.openConversation(chat.id);
  expect(next.draft).toBe('Not yet.');
});

test('words are kept until the message that they become is stored', async () => {
  const { app, backend, chat } = await start();
  vi.spyOn(backend, 'sendMessage').mockImplementation(() => new Promise(() => undefined));
  app.write('On its way.');
  void app.send();
  await vi.waitFor(() => expect(backend.sendMessage).toHaveBeenCalled());
  const next = await nextWindow(app);
  await next.openConversation(chat.id);
  expect(next.draft).toBe('On its way.');
});

test('what was typed before the words of the last window came stands after them', async () => {
  const { app, backend } = await start();
  app.newConversation();
  app.write('Before.');
  await app.unsent.keep();
  const next = new App(backend);
  next.write('After.');
  await next.start();
  expect(next.draft).toBe('Before.\n\nAfter.');
});

test('a conversation that was not opened keeps its words while it is deleted', async () => {
  const { app, chat } = await start();
  app.write('A thought.');
  const next = await nextWindow(app);
  await next.remove(chat.id);
  next.toasts.actOnNewest();
  await vi.waitFor(() => expect(next.conversations.some((one) => one.id === chat.id)).toBe(true));
  await next.openConversation(chat.id);
  expect(next.draft).toBe('A thought.');
});

test('what is written last is kept last, however long a write takes', async () => {
  const { app, backend, chat } = await start();
  const keep = backend.keepUnsent.bind(backend);
  let slow = true;
  vi.spyOn(backend, 'keepUnsent').mockImplementation(async (unsent) => {
    if (slow) {
      slow = false;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    await keep(unsent);
  });
  app.write('Half');
  const first = app.unsent.keep();
  await vi.waitFor(() => expect(backend.keepUnsent).toHaveBeenCalled());
  app.write('Half a thought');
  await Promise.all([first, app.unsent.keep()]);
  const next = await nextWindow(app);
  await next.openConversation(chat.id);
  expect(next.draft).toBe('Half a thought');
});
