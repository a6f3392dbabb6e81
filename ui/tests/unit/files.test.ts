import { fireEvent, render, screen, waitFor } from '@testing-library/svelte';
import { expect, test, vi } from 'vitest';
import { FakeBackend } from '../../src/backend/fake/fake';
import { parseOptions } from '../../src/backend/fake/options';
import { wholeText, wholeTexts } from '../../src/backend/text';
import Root from '../../src/components/Root.svelte';
import { App } from '../../src/state/app.svelte';
import { takeFiles } from '../../src/state/files';

const file = (name: string, content: string | Uint8Array<ArrayBuffer>, type = '') => new File([content], name, { type });

async function start(): Promise<{ app: App; backend: FakeBackend }> {
  const backend = new FakeBackend(parseOptions('fast'));
  const app = new App(backend);
  await app.start();
  return { app, backend };
}

test('text files that are dropped go into the draft, each in a block with its name', async () => {
  const { app } = await start();
  app.write('Compare these:');
  await app.takeFiles([file('a.py', 'print(1)\r\nprint(2)\n'), file('notes', 'One ``` fence')]);
  expect(app.draft).toBe('Compare these:\n\na.py\n\n```py\nprint(1)\nprint(2)\n```\n\nnotes\n\n````\nOne ``` fence\n````\n\n');
  expect(app.toasts.list).toEqual([]);
});

test('UTF-16 that says so is a text', async () => {
  expect((await takeFiles([file('n.txt', new Uint8Array([0xff, 0xfe, 0xe9, 0, 0x21, 0]))])).text).toContain('é!');
});

test('pictures, binaries, empty and large files get a word, and the others are taken', async () => {
  const { app } = await start();
  await app.takeFiles([
    file('cat.png', new Uint8Array([0x89, 0x50]), 'image/png'),
    file('a.pdf', new Uint8Array([0x25, 0x50, 0xff, 0xfe, 0])),
    file('zeros.bin', new Uint8Array(20)),
    file('empty.txt', ''),
    file('big.log', 'x'.repeat(600 * 1024)),
    file('b.txt', 'taken'),
  ]);
  expect(app.draft).toContain('taken');
  const said = app.toasts.list.map((toast) => toast.text).join(' ');
  for (const word of ['Pictures cannot be read', '“a.pdf” is no text', '“zeros.bin” is no text', '“empty.txt” is empty', '“big.log” is too large']) expect(said).toContain(word);
});

test('half characters and NUL are replaced, and all other text stays as it is', () => {
  expect(wholeText('a\ud800b\udc00c\0d')).toBe('a\ufffdb\ufffdc\ufffdd');
  const kept = 'tab\t line\r\n \u200d \ufeff \u202e 👩‍👩‍👧 𝒳 \x07';
  expect(wholeText(kept)).toBe(kept);
});

test('no text that is sent can break what carries it, wherever it stands', () => {
  const channel = new (class Channel {
    id = '\ud800';
  })();
  const sent = wholeTexts({ text: '\ud83d', sampling: { stop: ['\udc00', 'ok'], seed: 1, top_k: null }, channel });
  expect(sent).toEqual({ text: '\ufffd', sampling: { stop: ['\ufffd', 'ok'], seed: 1, top_k: null }, channel });
  expect(sent.channel).toBe(channel);
});

test('odd text from the clipboard is taken with a word, and is the message that is stored', async () => {
  const { app, backend } = await start();
  await app.openConversation(app.conversations[0].id);
  app.write('brief \ud83d and more');
  expect(app.draft).toBe('brief \ufffd and more');
  expect(app.toasts.list[0].text).toContain('replaced');
  await app.send();
  const { messages } = await backend.getConversation(app.open!.id);
  expect(messages.some((message) => message.text === 'brief \ufffd and more')).toBe(true);
});

const ODD = { target: { value: 'a\ud83d b\0' } };
const WHOLE = 'a\ufffd b\ufffd';

/** The window with the settings of the first conversation. */
async function showSettings() {
  const { app, backend } = await start();
  const { id } = app.conversations[0];
  await app.openConversation(id);
  app.settingsOpen = true;
  render(Root, { app });
  return { app, stored: async () => (await backend.getConversation(id)).conversation };
}

const isReplacementSaid = (app: App) => app.toasts.list.length === 1 && app.toasts.list[0].text.includes('replaced');

test('odd text in a title is replaced with a word', async () => {
  const { app, backend } = await start();
  const { id } = app.conversations[0];
  await app.rename(id, ODD.target.value);
  expect([app.conversations[0].title, (await backend.getConversation(id)).conversation.title]).toEqual([WHOLE, WHOLE]);
  expect(isReplacementSaid(app)).toBe(true);
});

test('odd text in a system prompt is replaced with a word', async () => {
  const { app, stored } = await showSettings();
  const field = screen.getByTestId<HTMLTextAreaElement>('system-prompt');
  await fireEvent.input(field, ODD);
  expect([field.value, isReplacementSaid(app)]).toEqual([WHOLE, true]);
  await fireEvent.change(field);
  await waitFor(async () => expect((await stored()).system_prompt).toBe(WHOLE));
  expect(isReplacementSaid(app), 'said once').toBe(true);
});

test('odd text in a stop string is replaced with a word', async () => {
  const { app, stored } = await showSettings();
  const field = screen.getByLabelText<HTMLTextAreaElement>('Stop strings');
  await fireEvent.change(field, ODD);
  await waitFor(async () => expect((await stored()).sampling.stop).toEqual([WHOLE]));
  expect([field.value, isReplacementSaid(app)]).toEqual([WHOLE, true]);
});

test('odd text in the search is replaced with a word', async () => {
  const { app } = await showSettings();
  const field = screen.getByTestId<HTMLInputElement>('search');
  await fireEvent.input(field, ODD);
  expect([field.value, app.search.text, isReplacementSaid(app)]).toEqual([WHOLE, WHOLE, true]);
});

test('clearing the cache says what was freed, and what went wrong', async () => {
  const { app, backend } = await start();
  await app.openConversation(app.conversations[0].id);
  app.write('brief');
  await app.send();
  await app.cache.refresh();
  const held = app.cache.stats!.live_bytes;
  expect(held).toBeGreaterThan(0);
  vi.spyOn(backend, 'clearCache').mockRejectedValueOnce({ code: 'storage', message: 'read-only' });
  await app.cache.clear();
  expect([app.cache.problem?.code, app.cache.freedBytes, app.cache.clearing]).toEqual(['storage', null, false]);
  await app.cache.clear();
  expect([app.cache.problem, app.cache.freedBytes]).toEqual([null, held]);
});

test('a deletion names what it deleted by its first words', async () => {
  const { app } = await start();
  const { id } = app.conversations[0];
  await app.rename(id, 'The quick brown fox jumps over the lazy dog and goes on to say more than anyone reads');
  await app.remove(id);
  expect(app.toasts.list[0].text).toBe('Deleted “The quick brown fox jumps over the lazy dog and goes on to…”');
});
