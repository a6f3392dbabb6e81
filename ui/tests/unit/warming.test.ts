import { fireEvent, render, screen, waitFor } from '@testing-library/svelte';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { FakeBackend } from '../../src/backend/fake/fake';
import { parseOptions } from '../../src/backend/fake/options';
import Root from '../../src/components/Root.svelte';
import { App } from '../../src/state/app.svelte';

let app: App;
let warmed: () => string[];
let items: HTMLElement[];

beforeEach(async () => {
  const backend = new FakeBackend(parseOptions(''));
  app = new App(backend);
  warmed = () => backend.calls.filter((call) => call.startsWith('warm '));
  render(Root, { app });
  await waitFor(() => expect(app.ready).toBe(true));
  items = screen.getAllByTestId('conversation-item');
  vi.useFakeTimers();
});

afterEach(() => void vi.useRealTimers());

const row = (item: HTMLElement) => item.parentElement as HTMLElement;

test('a conversation is warmed when the pointer has rested on it', async () => {
  await fireEvent.pointerEnter(row(items[1]));
  vi.advanceTimersByTime(149);
  expect(warmed()).toEqual([]);
  vi.advanceTimersByTime(1);
  expect(warmed()).toEqual([`warm ${app.conversations[1].id}`]);
});

test('a pointer that leaves before warms nothing', async () => {
  await fireEvent.pointerEnter(row(items[1]));
  vi.advanceTimersByTime(100);
  await fireEvent.pointerLeave(row(items[1]));
  await fireEvent.pointerEnter(row(items[2]));
  vi.advanceTimersByTime(140);
  expect(warmed()).toEqual([]);
  vi.advanceTimersByTime(10);
  expect(warmed()).toEqual([`warm ${app.conversations[2].id}`]);
});

test('a conversation of another model is left alone', async () => {
  app.conversations = app.conversations.map((one) => ({ ...one, model: 'Qwen3-0.6B' }));
  await fireEvent.pointerEnter(row(items[1]));
  vi.advanceTimersByTime(500);
  expect(warmed()).toEqual([]);
});

test('the keyboard warms what it rests on', async () => {
  vi.spyOn(items[1], 'matches').mockReturnValue(true);
  await fireEvent.focus(items[1]);
  vi.advanceTimersByTime(150);
  expect(warmed()).toEqual([`warm ${app.conversations[1].id}`]);
});
