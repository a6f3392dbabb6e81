import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { FakeBackend } from '../../src/backend/fake/fake';
import { parseOptions } from '../../src/backend/fake/options';
import { App } from '../../src/state/app.svelte';

let app: App;
let backend: FakeBackend;
const drafts = () => backend.calls.filter((call) => call.startsWith('draft '));

beforeEach(async () => {
  backend = new FakeBackend(parseOptions('fast'));
  app = new App(backend);
  await app.start();
  await app.openConversation(app.conversations[0].id);
  vi.useFakeTimers();
});

afterEach(() => void vi.useRealTimers());

test('what is typed is read ahead once the typing rests', () => {
  for (const text of ['What', 'What is', 'What is rye']) {
    app.write(text);
    vi.advanceTimersByTime(200);
  }
  expect(drafts()).toEqual([]);
  vi.advanceTimersByTime(100);
  expect(drafts()).toEqual(['draft What is rye']);
  app.write('What is ryebread');
  vi.advanceTimersByTime(300);
  expect(drafts(), 'only its last word has changed').toEqual(['draft What is rye']);
});

test('a long word without a space, as pasted keys and data have it, holds nothing up', () => {
  app.write(`${'x'.repeat(60_000)} and`);
  // Fake timers also fake the clock.
  const began = vi.getRealSystemTime();
  vi.advanceTimersByTime(1000);
  expect(drafts().length).toBe(1);
  expect(vi.getRealSystemTime() - began).toBeLessThan(500);
});

test('a script without spaces is asked for as it grows', () => {
  const text = '我们今天去北京看长城的时候天气非常好所以大家都很高兴'.repeat(8);
  for (let end = 1; end <= text.length; end += 1) {
    app.write(text.slice(0, end));
    vi.advanceTimersByTime(300);
  }
  // Nearly the whole text is read ahead, in steps of several characters.
  expect(drafts().at(-1)!.length).toBeGreaterThan(text.length - 16);
  expect(drafts().length).toBeGreaterThan(text.length / 16);
  expect(drafts().length).toBeLessThan(text.length / 4);
});

test('a draft that is cleared or left behind is discarded, once', async () => {
  app.write('What is rye');
  vi.advanceTimersByTime(300);
  app.write('');
  app.write('');
  expect(drafts()).toEqual(['draft What is rye', 'draft ']);
  app.write('And why');
  vi.advanceTimersByTime(300);
  await app.openConversation(app.conversations[1].id);
  expect(drafts().slice(2)).toEqual(['draft And why', 'draft ']);
  app.newConversation();
  expect(drafts().length).toBe(4);
});

test('a draft that is sent is not asked for again, and its tokens count as resident', async () => {
  const text = 'Tell me in brief what rye bread needs and why it is so dense';
  app.write(text);
  vi.advanceTimersByTime(300);
  const { id } = app.conversations[0];
  const cost = await backend.previewEdit(id, null, text);
  expect(cost.of - cost.keeps).toBeLessThan(8);
  app.write(`${text} and`);
  vi.useRealTimers();
  await app.send();
  const { stats } = app.open!.rows.at(-1)!.message;
  expect(stats!.prefill.computed).toBeLessThan(12);
  expect(drafts()).toEqual([`draft ${text}`]);
});

test('a discarded draft is cold again', async () => {
  const text = 'Tell me in brief what rye bread needs and why it is so dense';
  const { id } = app.conversations[0];
  const before = await backend.previewEdit(id, null, text);
  app.write(text);
  vi.advanceTimersByTime(300);
  app.write('');
  expect(await backend.previewEdit(id, null, text)).toEqual(before);
});

test('an earlier message that is edited is read ahead too, and sending it takes that over', async () => {
  const chat = app.open!;
  const message = chat.rows.find((row) => row.message.role === 'user')!.message;
  chat.startEdit(message);
  const text = 'Tell me in brief what rye bread needs and why it is so dense';
  chat.edit!.write(text);
  vi.advanceTimersByTime(300);
  expect(drafts()).toEqual([`draft ${text}`]);
  const cost = await backend.previewEdit(chat.id, message.id, text);
  expect(cost.of - cost.keeps).toBeLessThan(8);
  vi.useRealTimers();
  await chat.saveEdit();
  expect(drafts(), 'nothing is discarded').toEqual([`draft ${text}`]);
});

test('an edit that is cancelled is discarded, an edited reply is not read', () => {
  const chat = app.open!;
  const of = (role: string) => chat.rows.find((row) => row.message.role === role)!.message;
  chat.startEdit(of('user'));
  chat.edit!.write('Tell me in brief');
  vi.advanceTimersByTime(300);
  chat.closeEdit();
  expect(drafts()).toEqual(['draft Tell me in brief', 'draft ']);
  chat.startEdit(of('assistant'));
  chat.edit!.write('Rye is');
  vi.advanceTimersByTime(300);
  expect(drafts().length).toBe(2);
});
