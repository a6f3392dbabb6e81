import { expect, test } from 'vitest';
import { FakeCache } from '../../src/backend/fake/cache';
import { FakeBackend } from '../../src/backend/fake/fake';
import { parseOptions } from '../../src/backend/fake/options';
import { encode } from '../../src/backend/fake/tokens';
import type { TurnEvent } from '../../src/backend/types';

type Finished = Extract<TurnEvent, { event: 'finished' }>;

export function fake(options = 'empty,fast'): FakeBackend {
  return new FakeBackend(parseOptions(options));
}

async function finish(ask: (onEvent: (event: TurnEvent) => void) => Promise<void>): Promise<Finished> {
  return await new Promise((resolve, reject) => {
    ask((event) => event.event === 'finished' && resolve(event)).catch(reject);
  });
}

test('counts follow from the longest common prefix and add up to the prompt', () => {
  const cache = new FakeCache();
  const prompt = encode('one two three four five six seven');
  expect(cache.match(prompt)).toEqual({ resident: 0, restored: 0, computed: prompt.length });
  cache.keep(prompt);
  expect(cache.match(prompt)).toEqual({ resident: prompt.length - 1, restored: 0, computed: 1 });
  const edited = [...prompt.slice(0, 3), ...encode('other words')];
  expect(cache.match(edited)).toEqual({ resident: 3, restored: 0, computed: edited.length - 3 });
});

test('after a restart the counts are restored ones', () => {
  const cache = new FakeCache();
  const prompt = encode('one two three four five');
  cache.keepOnDisk(prompt);
  expect(cache.match([...prompt, 1])).toEqual({ resident: 0, restored: prompt.length, computed: 1 });
});

test('a turn reports a prefill that adds up, and an edit costs its suffix', async () => {
  const backend = fake();
  const { id } = await backend.createConversation(null, null);
  const first = await finish((onEvent) => backend.sendMessage(id, null, 'Answer brief.', onEvent));
  const { prefill } = first;
  expect(prefill.resident + prefill.restored + prefill.computed).toBe(first.prompt_tokens);
  const { messages } = await backend.getConversation(id);
  const cost = await backend.previewEdit(id, messages[0].id, 'Answer short.');
  const edited = await finish((onEvent) => backend.editMessage(id, messages[0].id, 'Answer short.', onEvent));
  expect(edited.prefill.resident).toBe(cost.keeps);
  expect(cost.keeps).toBeGreaterThan(0);
});

test('a conversation of 100k tokens is at hand', async () => {
  const backend = fake('long');
  const list = await backend.listConversations();
  const long = list.find((one) => one.title === 'A very long conversation');
  expect((await backend.contextUse(long?.id ?? '')).used).toBeGreaterThan(100_000);
});

test('refusals carry a code', async () => {
  const backend = fake('empty,error:busy');
  const { id } = await backend.createConversation(null, null);
  const events: TurnEvent[] = [];
  await backend.sendMessage(id, null, 'x', (event) => events.push(event));
  expect(events).toMatchObject([{ event: 'error', code: 'busy' }]);
  await expect(backend.getConversation('gone')).rejects.toMatchObject({ code: 'conversation_missing' });
});
