import { fireEvent, render, screen, waitFor, within } from '@testing-library/svelte';
import { expect, test, vi } from 'vitest';
import { FakeBackend } from '../../src/backend/fake/fake';
import { QWEN, SMOL } from '../../src/backend/fake/models';
import { parseOptions } from '../../src/backend/fake/options';
import Root from '../../src/components/Root.svelte';
import { App } from '../../src/state/app.svelte';
import type { Chat } from '../../src/state/chat.svelte';

const GONE = 'Mistral-7B-Instruct';

async function begin(options: string): Promise<{ app: App; backend: FakeBackend }> {
  const backend = new FakeBackend(parseOptions(options));
  const app = new App(backend);
  await app.start();
  return { app, backend };
}

/** Renders the window with the first conversation open. */
async function show(options: string): Promise<{ app: App; backend: FakeBackend; chat: Chat }> {
  const backend = new FakeBackend(parseOptions(options));
  const app = new App(backend);
  render(Root, { app });
  await waitFor(() => expect(app.ready).toBe(true));
  await app.openConversation(app.conversations[0].id);
  return { app, backend, chat: app.open as Chat };
}

async function say(app: App, text: string): Promise<void> {
  app.draft = text;
  await app.send();
}

const header = () => screen.getByTestId('model-picker').textContent?.trim();
const wrote = (chat: Chat) => chat.rows.at(-1)?.message.model;

test('a model that is chosen answers in the open conversation, and the header names it', async () => {
  const { app, backend, chat } = await show('fast');
  expect(header()).toBe(SMOL);
  expect(await app.chooseModel(QWEN)).toBe(true);
  await waitFor(() => expect(header()).toBe(QWEN));
  await say(app, 'brief');
  expect(wrote(chat)).toBe(QWEN);
  expect((await backend.getConversation(chat.id)).conversation.model).toBe(QWEN);
  expect((await backend.getConversation(chat.id)).messages.at(-1)?.model).toBe(QWEN);
  expect(header()).toBe(QWEN);
});

test('a reply of another model than the one that answers now shows whose it is', async () => {
  const { app, chat } = await show('fast');
  const lines = () => screen.getAllByTestId('quiet-line').map((line) => line.textContent ?? '');
  expect(lines().some((line) => line.includes(SMOL))).toBe(false);
  expect(screen.getAllByTestId('quiet-line')[0].title).toBe(`Written by ${SMOL}`);
  await app.chooseModel(QWEN);
  await say(app, 'brief');
  expect(chat.rows.length).toBeGreaterThan(2);
  await waitFor(() => expect(lines()[0]).toContain(SMOL));
  expect(lines().at(-1)).not.toContain(QWEN);
});

test('the header names the model of the conversation that is open, whichever is in memory', async () => {
  const { app } = await show('fast');
  await app.chooseModel(QWEN);
  await app.openConversation(app.conversations[1].id);
  await waitFor(() => expect(header()).toBe(SMOL));
  app.newConversation();
  await waitFor(() => expect(header(), 'the one that was chosen last').toBe(QWEN));
});

test('a new conversation is of the model that its page named, and stays so when a file is added', async () => {
  const { app, backend } = await begin('empty,fast');
  expect(app.model).toBe(SMOL);
  await say(app, 'brief');
  const chat = app.open as Chat;
  expect(await app.models.add('/models/Aaa.gguf')).toBe(true);
  expect(app.models.default?.name).toBe(SMOL);
  await say(app, 'brief again');
  expect(wrote(chat)).toBe(SMOL);
  expect((await backend.getConversation(chat.id)).conversation.model).toBe(SMOL);
});

test('a conversation whose model is gone says so, and goes on with the one that is chosen', async () => {
  const { app, chat } = await show('fast,gone-model');
  const notice = await screen.findByTestId('model-notice');
  expect(notice.dataset).toMatchObject({ wanted: GONE, model: SMOL });
  expect(header(), 'it never names what does not answer').toBe(SMOL);
  const before = chat.rows.length;
  await say(app, 'brief');
  expect(chat.problem).toBeNull();
  expect(chat.rows.length).toBe(before + 2);
  expect(wrote(chat)).toBe(SMOL);
  expect(chat.conversation.model).toBe(SMOL);
  await waitFor(() => expect(screen.getByTestId('model-notice').textContent).toContain('answers from now on'));
  await fireEvent.click(screen.getByTestId('model-notice-close'));
  await waitFor(() => expect(screen.queryByTestId('model-notice')).toBeNull());
  await say(app, 'brief');
  expect(chat.fallback).toBeNull();
});

test('the notice of a model that is gone leads to another one', async () => {
  const { app, chat } = await show('fast,gone-model');
  await fireEvent.click(await screen.findByTestId('model-notice-choose'));
  const items = await screen.findAllByTestId('model-item');
  await fireEvent.click(items.find((item) => item.dataset.name === QWEN) as HTMLElement);
  await waitFor(() => expect(app.models.choosing).toBe(false));
  expect(screen.queryByTestId('model-notice')).toBeNull();
  await say(app, 'brief');
  expect(wrote(chat)).toBe(QWEN);
});

test('without any model that can be used the words wait, and the one that comes answers them', async () => {
  const { app, backend } = await begin('fast');
  await app.openConversation(app.conversations[0].id);
  const chat = app.open as Chat;
  const files = backend.models.files;
  backend.models.files = [];
  backend.models.loaded = null;
  await say(app, 'brief');
  expect(chat.problem?.code).toBe('model_missing');
  expect(chat.problem?.remedies).toContain('choose_model');
  backend.models.files = files;
  expect(await app.chooseModel(QWEN)).toBe(true);
  await vi.waitFor(() => expect(wrote(chat)).toBe(QWEN));
  await vi.waitFor(() => expect(chat.streaming).toBe(false));
  expect(chat.problem).toBeNull();
  expect(chat.rows.at(-2)?.message.text).toBe('brief');
});

test('a model that cannot be loaded changes nothing', async () => {
  const { app, backend } = await begin('fast');
  await app.openConversation(app.conversations[0].id);
  const chat = app.open as Chat;
  backend.loadModel = async () => {
    throw { code: 'memory_full', message: 'it needs 9 MiB of memory and 8 MiB are free' };
  };
  expect(await app.chooseModel(QWEN)).toBe(false);
  expect(app.models.problem?.code).toBe('memory_full');
  expect(app.model).toBe(SMOL);
  expect((await backend.getConversation(chat.id)).conversation.model).toBe(SMOL);
  expect(await app.chooseModel('never heard of')).toBe(false);
  expect(app.models.problem?.code).toBe('model_missing');
});

test('the list is read again when it is opened', async () => {
  const { app, backend } = await show('fast');
  const [, other] = backend.models.files;
  backend.models.files = [...backend.models.files, { ...other, name: 'Zephyr', path: '/models/Zephyr.gguf' }];
  await fireEvent.click(screen.getByTestId('model-picker'));
  await waitFor(() => expect(screen.getAllByTestId('model-item').map((item) => item.dataset.name)).toContain('Zephyr'));
  expect(app.models.list.length).toBe(3);
});

test('files that cannot be used are shown as what they are, and cannot be chosen', async () => {
  const { app } = await show('fast,foreign-files');
  expect(app.models.default?.name).toBe(SMOL);
  await fireEvent.click(screen.getByTestId('model-picker'));
  const items = (await screen.findAllByTestId('model-item')) as HTMLButtonElement[];
  expect(items.filter((item) => item.disabled).map((item) => item.dataset.name)).toEqual(['A-partial', 'Gemma-3-4b', 'mmproj-F16']);
  const [partial] = items.filter((item) => item.disabled);
  expect(items.indexOf(partial), 'after those that can').toBe(items.filter((item) => !item.disabled).length);
  expect(partial.textContent).toContain('incomplete download');
  expect(partial.parentElement?.title).toContain('fetch it again');
});

test('a model whose chat template cannot be used can be chosen, and says so', async () => {
  await show('fast,foreign-files');
  await fireEvent.click(screen.getByTestId('model-picker'));
  const warning = await screen.findByTestId('model-warning');
  expect(warning.textContent).toContain('ChatML is used instead');
  expect((warning.closest('[data-testid="model-item"]') as HTMLButtonElement).disabled).toBe(false);
});

test('a model that was added is forgotten and comes back by Undo; a file of the folder is asked for first', async () => {
  const { app, backend } = await show('fast');
  await app.models.add('file:///home/you/My%20Models/Own.gguf');
  expect(app.models.list.find((model) => model.name === 'Own')?.path).toBe('/home/you/My Models/Own.gguf');
  await fireEvent.click(screen.getByTestId('model-picker'));
  const remove = (name: string) => {
    const item = screen.getAllByTestId('model-item').find((one) => one.dataset.name === name) as HTMLElement;
    return within(item.parentElement as HTMLElement).getByTestId('model-remove');
  };
  await waitFor(() => expect(remove('Own')).toBeTruthy());
  await fireEvent.click(remove('Own'));
  await waitFor(() => expect(backend.models.files.some((file) => file.name === 'Own')).toBe(false));
  expect(app.toasts.actOnNewest()).toBe(true);
  await waitFor(() => expect(backend.models.files.some((file) => file.name === 'Own')).toBe(true));

  await fireEvent.click(remove(QWEN));
  expect(backend.models.files.some((file) => file.name === QWEN), 'nothing is deleted unasked').toBe(true);
  await fireEvent.click(screen.getByTestId('model-delete'));
  await waitFor(() => expect(backend.models.files.some((file) => file.name === QWEN)).toBe(false));
});
