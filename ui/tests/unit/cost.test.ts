import { flushSync } from 'svelte';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { FakeBackend } from '../../src/backend/fake/fake';
import { parseOptions } from '../../src/backend/fake/options';
import { autogrow } from '../../src/components/autogrow';
import { App } from '../../src/state/app.svelte';
import { fits } from '../../src/state/cost.svelte';

let app: App;
let backend: FakeBackend;
const words = (number: number) => 'bread and salt '.repeat(Math.ceil(number / 3));

async function start(options: string): Promise<void> {
  backend = new FakeBackend(parseOptions(options));
  app = new App(backend);
  await app.start();
}

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test('what a long draft will cost stands there before it is sent, in a conversation and on the blank page', async () => {
  await start('fast');
  for (const open of [true, false]) {
    if (open) await app.openConversation(app.conversations[0].id);
    else app.newConversation();
    app.write('A few words.');
    await vi.advanceTimersByTimeAsync(2000);
    expect(app.draftCost.cost, 'a short one does not matter').toBeNull();
    app.write(words(600));
    await vi.advanceTimersByTimeAsync(2000);
    const cost = app.draftCost.cost!;
    expect(fits(cost)).toBe(true);
    expect(cost.of - cost.keeps).toBeGreaterThan(0);
    app.write(words(30_000));
    await vi.advanceTimersByTimeAsync(2000);
    expect(fits(app.draftCost.cost!), 'longer than the context').toBe(false);
    app.write('');
    expect(app.draftCost.cost).toBeNull();
  }
});

test('the cost of one conversation is not shown in another', async () => {
  await start('fast');
  await app.openConversation(app.conversations[0].id);
  app.write(words(600));
  await vi.advanceTimersByTimeAsync(2000);
  expect(app.draftCost.cost).not.toBeNull();
  await app.openConversation(app.conversations[1].id);
  expect(app.draftCost.cost).toBeNull();
  await app.openConversation(app.conversations[0].id);
  await vi.advanceTimersByTimeAsync(2000);
  expect(app.draftCost.cost).not.toBeNull();
});

test('a message that is too long by itself is offered what can help, and nothing else', async () => {
  await start('fast,context:600');
  const chat = (await app.openConversation(app.conversations[0].id), app.open!);
  vi.useRealTimers();
  app.write(words(3000));
  await app.send();
  expect(chat.problem).toMatchObject({ code: 'context_full', remedies: ['edit_earlier', 'new_conversation'] });
  await vi.waitFor(() => expect(chat.fits, 'it cannot be answered').toBe(false));
  expect(chat.context!.choices).toEqual(['edit_earlier', 'new_conversation', 'stop']);
});

test('a system prompt that is too long is said to be it, before and after a message', async () => {
  await start('fast,context:600');
  const chat = (await app.openConversation(app.conversations[0].id), app.open!);
  const cost = await chat.previewSystemPrompt(words(3000));
  expect(fits(cost!)).toBe(false);
  vi.useRealTimers();
  await chat.setSystemPrompt(words(3000));
  app.write('Hello.');
  await app.send();
  expect(chat.problem).toMatchObject({ title: 'The system prompt is longer than the context', remedies: ['edit_system_prompt'] });
});

test('typing into a long draft neither writes nor asks at each key', async () => {
  await start('fast');
  await app.openConversation(app.conversations[0].id);
  const keep = vi.spyOn(backend, 'keepUnsent');
  const text = words(60_000);
  for (let key = 0; key < 100; key += 1) {
    app.write(`${text}${'x'.repeat(key)}`);
    await vi.advanceTimersByTimeAsync(50);
  }
  // Five seconds of typing.
  expect(keep.mock.calls.length).toBeLessThanOrEqual(5);
  expect(backend.calls.filter((call) => call.startsWith('draft ')).length).toBe(0);
  await vi.advanceTimersByTimeAsync(1000);
  expect(keep.mock.lastCall![0].text, 'and the last word is kept').toBe(app.draft);
  app.write(`${text} and one more`);
  await app.openConversation(app.conversations[1].id);
  await vi.advanceTimersByTimeAsync(0);
  expect(keep.mock.lastCall![0].text, 'at once when the reader turns away').toBe(`${text} and one more`);
});

test('a field that is as high as it may be reads no layout at a key', async () => {
  vi.useRealTimers();
  vi.stubGlobal('CSS', { supports: () => false });
  const node = document.createElement('textarea');
  let reads = 0;
  let content = 20;
  Object.defineProperty(node, 'scrollHeight', { get: () => ((reads += 1), content) });
  Object.defineProperty(node, 'clientHeight', { get: () => Math.min(content, 360) });
  const action = autogrow(node, 'a');
  const type = async (text: string, height: number) => {
    content = height;
    reads = 0;
    if (action) action.update?.(text);
    await Promise.resolve();
    flushSync();
    return reads;
  };
  expect(await type('a\nb', 40)).toBe(1);
  expect(node.style.height).toBe('40px');
  expect(await type(words(60_000), 90_000), 'as it fills').toBe(1);
  expect(await type(`${words(60_000)}x`, 90_000)).toBe(0);
  expect(await type(words(60_000), 90_000), 'a key less').toBe(0);
  expect(await type('a', 20)).toBe(1);
  expect(node.style.height).toBe('20px');
  vi.unstubAllGlobals();
});
