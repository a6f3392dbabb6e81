import { flushSync } from 'svelte';
import { expect, test, vi } from 'vitest';
import { FakeBackend } from '../../src/backend/fake/fake';
import { parseOptions } from '../../src/backend/fake/options';
import { App } from '../../src/state/app.svelte';
import type { Chat } from '../../src/state/chat.svelte';

async function start(options = 'rate:400'): Promise<{ app: App; backend: FakeBackend; chat: Chat }> {
  const backend = new FakeBackend(parseOptions(options));
  const app = new App(backend);
  await app.start();
  await app.openConversation(app.conversations[0].id);
  return { app, backend, chat: app.open as Chat };
}

const waiting = (chat: Chat) => chat.words.queue.map((one) => one.text);
const said = (chat: Chat) => chat.rows.filter((row) => row.message.role === 'user').map((row) => row.message.text);

async function write(app: App, text: string): Promise<void> {
  app.write(text);
  await app.send();
}

/** Begins a reply and waits until it streams. */
async function begin(app: App, chat: Chat, text = 'Tell me about bread.'): Promise<void> {
  app.write(text);
  void app.send();
  await vi.waitFor(() => expect(chat.stream?.started).toBe(true));
}

test('Enter during a reply queues, and what waits is sent in its order when the reply ends', async () => {
  const { app, chat } = await start();
  const before = said(chat).length;
  await begin(app, chat);
  await write(app, 'The first, brief.');
  await write(app, 'The second, brief.');
  expect(waiting(chat)).toEqual(['The first, brief.', 'The second, brief.']);
  expect(app.draft).toBe('');
  await vi.waitFor(() => expect([waiting(chat).length, chat.streaming]).toEqual([0, false]), 8000);
  flushSync();
  expect(said(chat).slice(before)).toEqual(['Tell me about bread.', 'The first, brief.', 'The second, brief.']);
  expect(chat.rows.at(-1)?.message.state).toBe('complete');
});

test('what waits goes on while another conversation is open', async () => {
  const { app, chat } = await start();
  await begin(app, chat);
  await write(app, 'Be brief.');
  await app.openConversation(app.conversations.find((one) => one.id !== chat.id)!.id);
  await vi.waitFor(() => expect([waiting(chat).length, chat.streaming]).toEqual([0, false]), 8000);
  expect(said(chat).at(-1)).toBe('Be brief.');
});

test('what waits is in the composer of the next window, before what was being written', async () => {
  const { app, backend, chat } = await start();
  await begin(app, chat);
  await write(app, 'The first.');
  await write(app, 'The second.');
  app.write('Half a');
  await app.unsent.keep();
  const next = new App(backend);
  await next.start();
  expect(next.hasUnsent(chat.id)).toBe(true);
  await next.openConversation(chat.id);
  expect(next.draft).toBe('The first.\n\nThe second.\n\nHalf a');
  await chat.stop();
});

test('what waited is kept until it is a message, and no longer', async () => {
  const { app, backend, chat } = await start();
  await begin(app, chat);
  await write(app, 'Be brief.');
  await vi.waitFor(() => expect([waiting(chat).length, chat.streaming]).toEqual([0, false]), 8000);
  await app.unsent.keep();
  expect(await backend.unsent()).toEqual([]);
});

test('one that waits can be edited, removed and taken back', async () => {
  const { app, chat } = await start();
  await begin(app, chat);
  await write(app, 'The first.');
  await write(app, 'The second.');
  app.write('Half a');
  chat.words.reopen(chat.words.queue[0]);
  expect([waiting(chat), app.draft]).toEqual([['The second.'], 'The first.\n\nHalf a']);
  const [second] = chat.words.queue;
  chat.words.unqueue(second);
  expect(waiting(chat)).toEqual([]);
  chat.words.requeue(second);
  expect(waiting(chat)).toEqual(['The second.']);
  await chat.stop();
});

test('sent now, one that waits stops the reply and goes before the others', async () => {
  const { app, chat } = await start('rate:40');
  await begin(app, chat, 'Tell me about bread at length.');
  await write(app, 'The first.');
  await write(app, 'Be brief, now.');
  await chat.sendNow(chat.words.queue[1]);
  await vi.waitFor(() => expect(said(chat).at(-1)).toBe('Be brief, now.'), 8000);
  expect(chat.rows.at(-3)?.message.state).toBe('stopped');
  expect(waiting(chat)).toEqual(['The first.']);
  await chat.stop();
});

test('after a reply that was stopped or broke off the words wait, and the next Enter sends them in their order', async () => {
  const { app, backend, chat } = await start('rate:40');
  await begin(app, chat, 'Tell me about bread at length.');
  await write(app, 'The first, brief.');
  await chat.stop();
  await vi.waitFor(() => expect(chat.streaming).toBe(false), 8000);
  await new Promise((resolve) => setTimeout(resolve, 30));
  expect([waiting(chat), chat.streaming]).toEqual([['The first, brief.'], false]);
  backend.options.decodeRate = 4000;
  await write(app, 'The second, brief.');
  await vi.waitFor(() => expect([waiting(chat).length, chat.streaming]).toEqual([0, false]), 8000);
  expect(said(chat).slice(-2)).toEqual(['The first, brief.', 'The second, brief.']);
});

test('a message that waited and is refused stands before the others again', async () => {
  const { app, backend, chat } = await start();
  await begin(app, chat);
  await write(app, 'The first.');
  await write(app, 'The second.');
  backend.options.errorCode = 'storage';
  await vi.waitFor(() => expect(chat.problem?.code).toBe('storage'), 8000);
  expect(waiting(chat)).toEqual(['The first.', 'The second.']);
  backend.options.errorCode = null;
  backend.options.decodeRate = 4000;
  chat.tryAgain();
  await vi.waitFor(() => expect([waiting(chat).length, chat.streaming]).toEqual([0, false]), 8000);
  expect(said(chat).slice(-2)).toEqual(['The first.', 'The second.']);
});
