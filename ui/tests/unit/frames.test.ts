import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { FrameBuffer } from '../../src/state/frames';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test('a stream is drawn at most twenty times a second, and no word waits longer', async () => {
  const drawn: string[] = [];
  const buffer = new FrameBuffer((text) => drawn.push(text));
  let sent = '';
  for (let i = 0; i < 200; i += 1) {
    buffer.push(`${i} `);
    sent += `${i} `;
    await vi.advanceTimersByTimeAsync(5);
  }
  expect(drawn.length).toBeGreaterThan(12);
  expect(drawn.length).toBeLessThanOrEqual(21);
  await vi.advanceTimersByTimeAsync(100);
  expect(drawn.join('')).toBe(sent);
});

test('the first word is drawn in the next frame, and the last one at once when the stream ends', async () => {
  const drawn: string[] = [];
  const buffer = new FrameBuffer((text) => drawn.push(text));
  buffer.push('one');
  await vi.advanceTimersByTimeAsync(20);
  expect(drawn).toEqual(['one']);
  buffer.push(' two');
  buffer.flush();
  expect(drawn).toEqual(['one', ' two']);
  await vi.advanceTimersByTimeAsync(200);
  expect(drawn).toEqual(['one', ' two']);
});
