import { fireEvent, render, screen, waitFor } from '@testing-library/svelte';
import { expect, test, vi } from 'vitest';
import { FakeBackend } from '../../src/backend/fake/fake';
import { parseOptions } from '../../src/backend/fake/options';
import Root from '../../src/components/Root.svelte';
import { App } from '../../src/state/app.svelte';
import type { Chat } from '../../src/state/chat.svelte';

/** The first conversation, of two turns, in a context of which it fills this share. */
async function openFilled(share: number, options = 'fast'): Promise<{ app: App; chat: Chat; backend: FakeBackend }> {
  const backend = new FakeBackend(parseOptions(options));
  const app = new App(backend);
  await app.start();
  const { id } = app.conversations[0];
  backend.options.contextTokens = Math.ceil((await backend.contextUse(id)).used / share);
  await app.openConversation(id);
  await vi.waitFor(() => expect(app.open?.context?.limit).toBe(backend.options.contextTokens));
  return { app, chat: app.open as Chat, backend };
}

const texts = (chat: Chat) => chat.rows.map((row) => row.message.text);

test('dropping the oldest turns keeps the latest as they are, and the full branch is a step away', async () => {
  const { chat } = await openFilled(0.95);
  const before = texts(chat);
  await chat.shorten('drop_oldest');
  expect(texts(chat)).toEqual(before.slice(2));
  expect(chat.streaming).toBe(false);
  const [first] = chat.rows;
  expect(chat.tree.leftOut(first.message)).toBe(1);
  await chat.showBranch(chat.tree.siblings(first.message)[0]);
  expect(texts(chat)).toEqual(before);
});

test('a compacted branch begins with the summary that was streamed', async () => {
  const { chat } = await openFilled(0.95, 'rate:80');
  const before = texts(chat);
  const going = chat.shorten('compact');
  await vi.waitFor(() => expect(chat.stream?.text.length ?? 0).toBeGreaterThan(5));
  expect(texts(chat).slice(0, -1)).toEqual(before);
  const streamed = chat.stream?.text ?? '';
  await going;
  const [summary] = chat.rows;
  expect(summary.message.kind).toBe('summary');
  expect(summary.message.text).toContain(streamed);
  expect(chat.rows.length).toBeLessThan(before.length);
  await chat.load();
  expect(chat.rows[0].message.id).toBe(summary.message.id);
});

test('a summary that is stopped leaves the full branch as it was', async () => {
  const { chat, backend } = await openFilled(0.95, 'rate:40');
  const before = chat.rows.map((row) => row.message.id);
  const going = chat.shorten('compact');
  await vi.waitFor(() => expect(chat.stream?.text.length ?? 0).toBeGreaterThan(5));
  await chat.stop();
  await going;
  expect(chat.problem).toBeNull();
  expect(chat.rows.map((row) => row.message.id)).toEqual(before);
  expect((await backend.getConversation(chat.id)).messages.length).toBe(before.length + 1);
});

test('a turn that does not fit offers what can be done, and is answered in the shorter branch', async () => {
  const { app, chat } = await openFilled(0.99);
  app.draft = 'And rye bread, in brief? '.repeat(4);
  await app.send();
  expect(chat.problem).toMatchObject({ code: 'context_full', remedies: ['compact', 'drop_oldest'] });
  await chat.shorten('drop_oldest');
  expect(chat.problem).toBeNull();
  expect(texts(chat).at(-2)).toContain('And rye');
  expect(chat.rows.at(-1)?.message.state).toBe('complete');
});

test('a conversation set to it shortens by itself and goes on', async () => {
  for (const when of ['compact', 'drop_oldest'] as const) {
    const { app, chat } = await openFilled(0.99);
    await chat.setWhenFull(when);
    app.draft = 'And rye bread, in brief? '.repeat(4);
    await app.send();
    expect(chat.problem).toBeNull();
    expect(texts(chat).at(-2)).toContain('And rye');
    expect(chat.rows.at(-1)?.message.state).toBe('complete');
    expect(chat.rows[0].message.kind).toBe(when === 'compact' ? 'summary' : 'said');
    expect(chat.shortened).toBe(`Went on ${when === 'compact' ? 'with a summary of 2 turns' : 'without the oldest turn'}. The full branch stays.`);
  }
});

test('a conversation set to stop offers nothing', async () => {
  const { app, chat } = await openFilled(0.99);
  await chat.setWhenFull('stop');
  app.draft = 'And rye bread, in brief? '.repeat(4);
  await app.send();
  expect(chat.problem).toMatchObject({ code: 'context_full', remedies: [] });
});

test('the meter turns at nine tenths and offers what can be done', async () => {
  for (const [share, turned] of [[0.88, false], [0.92, true]] as const) {
    const { app, chat } = await openFilled(share);
    const { unmount } = render(Root, { app });
    const meter = await screen.findByTestId('context-meter');
    expect(meter.textContent?.includes('nearly full:')).toBe(turned);
    expect(screen.queryByTestId('context-open') !== null).toBe(turned);
    if (turned) {
      await fireEvent.click(screen.getByTestId('context-open'));
      await fireEvent.click(screen.getByTestId('context-drop_oldest'));
      await waitFor(() => expect(chat.tree.leftOut(chat.rows[0].message)).toBe(1));
      expect(screen.getByTestId('left-out').textContent).toContain('1 earlier turn is left out here');
    }
    unmount();
  }
});

test('under a reply that ran into the limit the same is offered', async () => {
  const { app, chat, backend } = await openFilled(0.5);
  const { messages } = await backend.getConversation(chat.id);
  const stored = backend.history.message(chat.id, messages.at(-1)!.id);
  stored.state = 'context_full';
  await chat.load();
  render(Root, { app });
  await fireEvent.click(await screen.findByTestId('context-drop_oldest'));
  await waitFor(() => expect(chat.rows.at(-1)?.message.state).toBe('complete'));
  expect(chat.tree.leftOut(chat.rows[0].message)).toBe(1);
  expect(messages.at(-1)!.text.length).toBeLessThan(chat.rows.at(-1)!.message.text.length);
});
