import { flushSync } from 'svelte';
import { expect, test, vi } from 'vitest';
import type { OnTurnEvent } from '../../src/backend/backend';
import { FakeBackend } from '../../src/backend/fake/fake';
import { parseOptions } from '../../src/backend/fake/options';
import { makeMessage } from '../../src/backend/fake/seed';
import { App } from '../../src/state/app.svelte';
import type { EditCost } from '../../src/state/types';
import type { Chat } from '../../src/state/chat.svelte';

async function start(options = 'empty,fast'): Promise<{ app: App; backend: FakeBackend }> {
  const backend = new FakeBackend(parseOptions(options));
  const app = new App(backend);
  await app.start();
  return { app, backend };
}

async function openFirst(app: App): Promise<Chat> {
  await app.openConversation(app.conversations[0].id);
  return app.open as Chat;
}

const texts = (chat: Chat) => chat.rows.map((row) => row.message.text);

test('the first message makes the conversation, names it and is answered', async () => {
  const { app } = await start();
  app.draft = 'Answer brief, please';
  await app.send();
  const chat = app.open as Chat;
  expect(app.draft).toBe('');
  expect(texts(chat)).toEqual(['Answer brief, please', 'Yes.']);
  expect(chat.rows[1].message.state).toBe('complete');
  expect(chat.rows[1].message.stats?.prompt_tokens).toBeGreaterThan(0);
  await vi.waitFor(() => expect(app.conversations[0].title).toBe('Answer brief, please'));
});

test('what was set on the blank page holds for the conversation made from it', async () => {
  const { app, backend } = await start();
  app.beginning.systemPrompt = 'Be kind.';
  app.beginning.sampling = { ...app.beginning.sampling, temperature: 0 };
  app.draft = 'brief';
  await app.send();
  const { conversation } = await backend.getConversation((app.open as Chat).id);
  expect(conversation.system_prompt).toBe('Be kind.');
  expect(conversation.sampling.temperature).toBe(0);
  app.newConversation();
  expect(app.beginning.systemPrompt).toBe('');
});

test('the message shows at once and keeps its place in the list when it is stored', async () => {
  const { app } = await start('fast');
  const chat = await openFirst(app);
  app.draft = 'brief';
  const sending = app.send();
  flushSync();
  const [user, reply] = chat.rows.slice(-2);
  expect(user.message.text).toBe('brief');
  expect(reply.live).not.toBeNull();
  await sending;
  expect(chat.rows.slice(-2).map((row) => row.key)).toEqual([user.key, reply.key]);
  expect(chat.rows.at(-1)?.message.id).not.toBe(reply.key);
});

test('a user message that is stored before its reply stands is shown once', async () => {
  const { app, backend } = await start();
  let emit: OnTurnEvent = () => undefined;
  backend.sendMessage = async (_conversation, _parent, _text, onEvent) => void (emit = onEvent);
  app.draft = 'hello';
  const sending = app.send();
  await vi.waitFor(() => expect(app.open?.streaming).toBe(true));
  const chat = app.open as Chat;
  await vi.waitFor(() => expect(emit.length).toBe(1));
  const user = makeMessage(chat.id, null, 'user', 'hello', 1);
  emit({ event: 'started', user, reply: null });
  expect(texts(chat)).toEqual(['hello', '']);
  const reply = { ...makeMessage(chat.id, user.id, 'assistant', '', 2), state: 'generating' as const };
  emit({ event: 'started', user: null, reply });
  emit({ event: 'token', text: 'Hi' });
  expect(chat.rows.map((row) => row.message.id)).toEqual([user.id, reply.id]);
  const stats = { prefill: { resident: 0, restored: 0, computed: 5 }, prompt_tokens: 5, completion_tokens: 1, ttft_ms: 1, tokens_per_s: 1, restore_ms: 0 };
  emit({ event: 'finished', message: reply.id, model: 'SmolLM2-135M-Instruct', text: 'Hi', state: 'complete', ...stats });
  await sending;
  expect(texts(chat)).toEqual(['hello', 'Hi']);
});

test('a full context before the reply keeps the stored message, and it can be answered later', async () => {
  const { app } = await start('context-full');
  const chat = await openFirst(app);
  const before = chat.rows.length;
  app.draft = 'more';
  await app.send();
  expect(chat.problem?.code).toBe('context_full');
  expect(chat.rows.length).toBe(before + 1);
  expect(chat.rows.at(-1)?.message.text).toBe('more');
});

test('a refused message goes back to the composer', async () => {
  const { app } = await start('error:busy');
  const chat = await openFirst(app);
  const before = chat.rows.length;
  app.draft = 'keep me';
  await app.send();
  expect(app.draft).toBe('keep me');
  expect(chat.rows.length).toBe(before);
  expect(chat.problem).toMatchObject({ code: 'busy' });
  expect(chat.problem?.remedies).toContain('retry');
});

test('a reply that breaks off keeps its text and can be asked for again', async () => {
  const { app, backend } = await start('fast,break:internal');
  const chat = await openFirst(app);
  app.draft = 'bread';
  await app.send();
  expect(chat.rows.at(-1)?.message.state).toBe('failed');
  expect(chat.rows.at(-1)?.message.text.length).toBeGreaterThan(10);
  backend.options.breakCode = null;
  chat.tryAgain();
  await vi.waitFor(() => expect(chat.rows.at(-1)?.message.state).toBe('complete'), 5000);
  expect(chat.tree.siblings(chat.rows.at(-1)!.message).length).toBe(2);
});

test('a reply cut off by the end of the engine keeps its text, and goes on', async () => {
  const { app, backend } = await start('fast,break:engine_restarted');
  const chat = await openFirst(app);
  app.draft = 'bread';
  await app.send();
  await vi.waitFor(() => expect(chat.rows.at(-1)?.message.state).toBe('interrupted'));
  expect(chat.problem?.code).toBe('engine_restarted');
  const cut = chat.rows.at(-1)!.message;
  expect(cut.text.length).toBeGreaterThan(10);
  backend.options.breakCode = null;
  await chat.continueReply(cut);
  expect(chat.rows.at(-1)?.message.state).toBe('complete');
  expect(chat.rows.at(-1)?.message.text.startsWith(cut.text)).toBe(true);
  expect(chat.problem).toBeNull();
});

test('a reply that goes on begins with what the engine says, not with what was shown where it was cut', async () => {
  const { app, backend } = await start('fast');
  const chat = await openFirst(app);
  for (const cut of ['Half a \ufffd', '\ufffd']) {
    Object.assign(backend.history.message(chat.id, chat.rows.at(-1)!.message.id), { text: cut, state: 'stopped' });
    await chat.load();
    expect(chat.rows.at(-1)?.message.text).toBe(cut);
    await chat.continueReply(chat.rows.at(-1)!.message);
    const whole = chat.rows.at(-1)!.message.text;
    expect(whole).not.toContain('\ufffd');
    expect(whole.startsWith(cut.replace('\ufffd', ''))).toBe(true);
    expect(whole.length).toBeGreaterThan(cut.length);
  }
}, 20_000);

test('drafts belong to their conversation', async () => {
  const { app } = await start('');
  await openFirst(app);
  app.draft = 'for the first';
  await app.openConversation(app.conversations[1].id);
  expect(app.draft).toBe('');
  app.draft = 'for the second';
  app.newConversation();
  app.draft = 'for a new one';
  await app.openConversation(app.conversations[0].id);
  expect(app.draft).toBe('for the first');
  app.newConversation();
  expect(app.draft).toBe('for a new one');
});

test('the first word of a draft brings the conversation back, the next ones do not', async () => {
  const { app, backend } = await start('fast');
  const chat = await openFirst(app);
  const warmed = () => backend.calls.filter((call) => call === `open ${chat.id}`).length;
  expect(warmed()).toBe(1);
  app.draft = 'H';
  app.draft = 'He';
  expect(warmed()).toBe(2);
  app.draft = '';
  expect(warmed()).toBe(2);
});

test('the engine is told which conversation is looked at, and when none is', async () => {
  const { app, backend } = await start('');
  const chat = await openFirst(app);
  app.newConversation();
  expect(backend.calls.filter((call) => call.startsWith('open '))).toEqual([`open ${chat.id}`, 'open null']);
});

test('a stream goes on in the background and marks the conversation when it ends', async () => {
  const { app } = await start('rate:400');
  const chat = await openFirst(app);
  app.draft = 'bread';
  const sending = app.send();
  await app.openConversation(app.conversations.find((one) => one.id !== chat.id)!.id);
  expect(app.writing.has(chat.id)).toBe(true);
  await sending;
  expect(chat.rows.at(-1)?.message.state).toBe('complete');
  expect(app.unread.has(chat.id)).toBe(true);
  await app.openConversation(chat.id);
  expect(app.unread.has(chat.id)).toBe(false);
});

test('stop ends the turn and keeps the text', async () => {
  const { app, backend } = await start('rate:60');
  const chat = await openFirst(app);
  app.draft = 'bread';
  const sending = app.send();
  await vi.waitFor(() => expect(chat.stream?.text.length ?? 0).toBeGreaterThan(5), 5000);
  await chat.stop();
  await sending;
  expect(backend.calls).toContain('stop');
  expect(chat.rows.at(-1)?.message.state).toBe('stopped');
  expect(chat.rows.at(-1)?.message.text.length).toBeGreaterThan(5);
  const before = chat.rows.at(-1)!.message.text;
  await chat.continueReply(chat.rows.at(-1)!.message);
  expect(chat.rows.at(-1)!.message.text.startsWith(before)).toBe(true);
  expect(chat.rows.at(-1)!.message.text.length).toBeGreaterThan(before.length);
}, 30_000);

test('deleting while it streams stops it, and undo brings it back with its draft', async () => {
  const { app, backend } = await start('rate:60');
  const chat = await openFirst(app);
  app.draft = 'bread';
  void app.send();
  await vi.waitFor(() => expect(chat.stream?.started).toBe(true));
  app.draft = 'unsent';
  await app.remove(chat.id);
  expect(backend.calls).toContain('stop');
  expect(app.open).toBeNull();
  expect(app.conversations.some((one) => one.id === chat.id)).toBe(false);
  expect(app.toasts.actOnNewest()).toBe(true);
  await vi.waitFor(() => expect(app.open?.id).toBe(chat.id));
  expect(app.draft).toBe('unsent');
  await vi.waitFor(() => expect(app.open?.loaded).toBe(true));
  expect(app.writing.size).toBe(0);
});

test('an edit shows its cost and becomes a branch; the old one is a step away', async () => {
  const { app } = await start('fast');
  const chat = await openFirst(app);
  const old = chat.rows[2].message;
  chat.startEdit(old);
  await vi.waitFor(() => expect(chat.edit?.cost?.keeps).toBeGreaterThan(50));
  chat.edit?.write('brief now');
  expect(chat.edit?.changed).toBe(true);
  await chat.saveEdit();
  expect(chat.edit).toBeNull();
  const edited = chat.rows[2].message;
  expect(edited.text).toBe('brief now');
  expect(chat.tree.siblings(edited).length).toBe(2);
  await chat.showBranch(old);
  expect(chat.rows[2].message.id).toBe(old.id);
  expect(chat.rows.length).toBe(4);
});

test('only the newest cost is shown', async () => {
  const { app, backend } = await start('');
  const chat = await openFirst(app);
  const answers: ((cost: EditCost) => void)[] = [];
  const cost = (keeps: number, of: number): EditCost => ({ keeps, of, at_least: false, limit: 8192, read_ms: null });
  backend.previewEdit = () => new Promise((resolve) => answers.push(resolve));
  chat.startEdit(chat.rows[0].message);
  chat.edit?.write('a');
  await vi.waitFor(() => expect(answers.length).toBe(2));
  answers[1](cost(2, 3));
  answers[0](cost(9, 9));
  await vi.waitFor(() => expect(chat.edit?.cost).toEqual(cost(2, 3)));
});

test('an edited reply is a sibling and no turn runs', async () => {
  const { app } = await start('');
  const chat = await openFirst(app);
  const reply = chat.rows.at(-1)!.message;
  chat.startEdit(reply);
  chat.edit?.write('Mine.');
  await chat.saveEdit();
  expect(chat.rows.at(-1)?.message.text).toBe('Mine.');
  expect(chat.streaming).toBe(false);
  expect(chat.tree.siblings(chat.rows.at(-1)!.message).length).toBe(2);
});

test('search asks once the typing rests, and an old answer never covers a new one', async () => {
  const { app } = await start('');
  app.search.write('ste');
  app.search.write('steam');
  await vi.waitFor(() => expect(app.search.answered).toBe(true));
  expect(app.search.hits.length).toBeGreaterThan(0);
  app.search.clear();
  expect(app.search.hits).toEqual([]);
});

test('a model that was added is loaded when there was none', async () => {
  const { app } = await start('no-model,empty');
  expect(await app.models.add('/tmp/notes.txt')).toBe(false);
  expect(app.models.problem?.code).toBe('model_not_gguf');
  expect(await app.models.add(' "/models/tiny.gguf" ')).toBe(true);
  expect(app.models.loaded?.name).toBe('tiny');
});

test('a turn that is stopped while it waits ends without a complaint, and its message can be answered later', async () => {
  const { app, backend } = await start();
  let emit: OnTurnEvent = () => undefined;
  backend.sendMessage = async (_conversation, _parent, _text, onEvent) => void (emit = onEvent);
  app.draft = 'hello';
  const sending = app.send();
  await vi.waitFor(() => expect(emit.length).toBe(1));
  const chat = app.open as Chat;
  emit({ event: 'started', user: makeMessage(chat.id, null, 'user', 'hello', 1), reply: null });
  emit({ event: 'error', code: 'stopped', message: 'stopped before it began' });
  await sending;
  expect(chat.problem).toBeNull();
  expect(texts(chat)).toEqual(['hello']);
  expect(app.draft).toBe('');
});

test('a turn waits for settings that are on their way', async () => {
  const { app, backend } = await start('fast');
  const chat = await openFirst(app);
  const order: string[] = [];
  backend.setSystemPrompt = () => new Promise((resolve) => setTimeout(() => resolve(void order.push('prompt')), 50));
  const sendMessage = backend.sendMessage.bind(backend);
  backend.sendMessage = (...args) => (order.push('send'), sendMessage(...args));
  void chat.setSystemPrompt('Be kind.');
  app.draft = 'brief';
  await app.send();
  expect(order).toEqual(['prompt', 'send']);
});

test('an export is copied or saved, and says so', async () => {
  const { app } = await start('');
  const chat = await openFirst(app);
  await app.export.saveConversation(chat.id, 'json');
  expect(app.toasts.list.at(-1)?.text).toBe('Saved to /home/you/Why bread needs steam.json');
  await app.export.saveConversation('gone', 'json');
  expect(app.problem?.code).toBe('conversation_missing');
});
