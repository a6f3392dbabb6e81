import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Toasts } from '../../src/state/toasts.svelte';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test('what can be undone waits while the hand is on it', () => {
  const toasts = new Toasts();
  toasts.show('Deleted', { label: 'Undo', run: () => undefined });
  vi.advanceTimersByTime(7900);
  toasts.hold(true);
  toasts.show('Copied');
  vi.advanceTimersByTime(60_000);
  expect(toasts.list.map((toast) => toast.text)).toEqual(['Deleted', 'Copied']);
  toasts.hold(false);
  vi.advanceTimersByTime(2900);
  expect(toasts.list.length).toBe(2);
  vi.advanceTimersByTime(200);
  expect(toasts.list).toEqual([]);
});

test('a toast that was held and taken holds no later one', () => {
  const toasts = new Toasts();
  let undone = 0;
  toasts.show('Deleted', { label: 'Undo', run: () => (undone += 1) });
  toasts.hold(true);
  toasts.act(toasts.list[0]);
  expect(undone).toBe(1);
  toasts.show('Copied');
  vi.advanceTimersByTime(3100);
  expect(toasts.list).toEqual([]);
});
