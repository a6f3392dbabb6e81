import { fireEvent, render, waitFor } from '@testing-library/svelte';
import { expect, test, vi } from 'vitest';
import ReplyText from '../../src/components/ReplyText.svelte';
import { writeClipboard } from '../../src/state/clipboard';
import { soughtWords } from '../../src/words/fold';

vi.mock('../../src/state/context', () => ({ useApp: () => ({ openLink: vi.fn() }) }));
vi.mock('../../src/state/clipboard', () => ({ writeClipboard: vi.fn(async () => true) }));
// The sanitiser needs a real DOM; the browser tests cover it.
vi.mock('dompurify', () => ({ default: { sanitize: (html: string) => html } }));

const lines = (count: number) => Array.from({ length: count }, (_, at) => `line(${at});`).join('\n');
const code = (count: number) => `Look:\n\n\`\`\`js\n${lines(count)}\n\`\`\`\n\nDone.`;
const is = (name: string) => (document.querySelector('.code') as HTMLElement).classList.contains(name);
const button = (kind: string) => document.querySelector(`[data-${kind}]`) as HTMLButtonElement;
let count = 0;
const props = (text: string) => ({ text, reply: `reply ${++count}`, state: 'complete' as 'complete' | 'generating', found: null });

test('long code is folded, says how long it is, and is copied whole', async () => {
  render(ReplyText, props(code(30)));
  await waitFor(() => expect(is('folded')).toBe(true));
  expect(button('unfold').textContent).toBe('Show all 30 lines');
  await fireEvent.click(button('copy'));
  expect(vi.mocked(writeClipboard).mock.calls.at(-1)?.[0].trim()).toBe(lines(30));
  await fireEvent.click(button('unfold'));
  expect([is('folded'), button('unfold').textContent, button('unfold').getAttribute('aria-expanded')]).toEqual([false, 'Show less', 'true']);
  await fireEvent.click(button('unfold'));
  expect(is('folded')).toBe(true);
});

test('code of a usual length is never folded', async () => {
  render(ReplyText, props(code(24)));
  await waitFor(() => expect(button('unfold').textContent).toBe('Show all 24 lines'));
  expect([is('folded'), is('foldable')]).toEqual([false, false]);
});

test('code that was seen being written is not folded when the reply is finished', async () => {
  const given = props(code(40));
  const { rerender } = render(ReplyText, { ...given, state: 'generating' });
  await waitFor(() => expect(button('unfold').getAttribute('aria-expanded')).toBe('true'));
  expect([is('folded'), is('foldable')]).toEqual([false, false]);
  await rerender({ ...given, text: `${given.text} Yes.` });
  expect([is('folded'), is('foldable')]).toEqual([false, false]);
});

test('what was looked for is not folded away', async () => {
  const given = props(code(40));
  const { rerender } = render(ReplyText, given);
  await waitFor(() => expect(is('folded')).toBe(true));
  await rerender({ ...given, found: soughtWords('line') });
  await waitFor(() => expect(is('folded')).toBe(false));
});

test('long lines of a block wrap where that was asked for, and it is remembered', async () => {
  const given = props(`${code(3)}\n\n\`\`\`js\nother\n\`\`\``);
  const shown = render(ReplyText, given);
  expect(button('wrap').getAttribute('aria-pressed')).toBe('false');
  await fireEvent.click(button('wrap'));
  const pressed = () => [...document.querySelectorAll('[data-wrap]')].map((one) => one.getAttribute('aria-pressed'));
  expect([is('wrapped'), ...pressed()]).toEqual([true, 'true', 'false']);
  shown.unmount();
  render(ReplyText, given);
  await waitFor(() => expect([is('wrapped'), ...pressed()]).toEqual([true, 'true', 'false']));
});
