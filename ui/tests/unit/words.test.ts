import { expect, test } from 'vitest';
import { makeConversation } from '../../src/backend/fake/seed';
import { groupByDay } from '../../src/state/days';
import { titleFrom, titleOf } from '../../src/backend/fake/title';
import { bytes, count, duration, quietParts, roughly, shares, shortenedWords } from '../../src/state/format';
import { costWords, systemCostWords } from '../../src/state/cost.svelte';
import { fixture } from './fixture';
import { contextProblem, problemOf } from '../../src/state/problem';
import type { ContextChoice } from '../../src/state/types';
import { partsOf, withoutMarkup } from '../../src/state/search.svelte';

test('thousands are parted by a space that is seen in every webview', () => {
  expect(count(3120)).toBe('3\u00a0120');
  expect(count(1234567)).toBe('1\u00a0234\u00a0567');
  expect(count(999)).toBe('999');
});

test('durations and sizes carry their unit', () => {
  expect(duration(84.3)).toBe('84\u00a0ms');
  expect(duration(2345)).toBe('2.3\u00a0s');
  expect(bytes(144_811_456)).toBe('145\u00a0MB');
  expect(bytes(20e9)).toBe('20.0\u00a0GB');
});

test('the quiet line says what was reused, restored and computed, and how fast', () => {
  const stats = { prefill: { resident: 3120, restored: 210, computed: 27 }, prompt_tokens: 3357, completion_tokens: 90, ttft_ms: 84, tokens_per_s: 41.2, restore_ms: 3 };
  expect(quietParts(stats).join(' · ')).toBe('3\u00a0120 reused · 210 restored · 27 computed · first token 84\u00a0ms · 41 tokens/s');
  const cold = { ...stats, prefill: { resident: 0, restored: 0, computed: 27 }, tokens_per_s: 0 };
  expect(quietParts(cold)).toEqual(['27 computed', 'first token 84\u00a0ms']);
});

test('a shorter branch is told in one line', () => {
  expect(shortenedWords('drop_oldest', 1, 0)).toBe('Went on without the oldest turn. The full branch stays.');
  expect(shortenedWords('drop_oldest', 12, 0)).toBe('Went on without the 12 oldest turns. The full branch stays.');
  expect(shortenedWords('compact', 12, 0)).toBe('Went on with a summary of 12 turns. The full branch stays.');
  expect(shortenedWords('compact', 3, 2)).toBe('Went on with a summary of 1 turn, without the 2 oldest turns. The full branch stays.');
});

test('shares of nothing are nothing', () => {
  expect(shares({ resident: 0, restored: 0, computed: 0 })).toEqual({ resident: 0, restored: 0, computed: 0 });
});

test('a title is made and kept as in the history', () => {
  const cases = fixture<{ text: string; times?: number; title: string }>('titles');
  for (const { text, times = 1, title } of cases) expect(titleFrom(text.repeat(times))).toBe(title);
  expect(titleOf(' Taxes\u001b[2J\n2026\u202e ')).toBe('Taxes[2J 2026');
});

test('conversations are grouped by day, newest first', () => {
  const now = new Date(2026, 10, 29, 14).getTime();
  const at = (hours: number) => makeConversation(`${hours}`, '', now - hours * 3_600_000, null);
  const groups = groupByDay([at(1), at(30), at(24 * 5), at(24 * 20), at(24 * 60), at(24 * 500)], now);
  expect(groups.map((group) => group.name)).toEqual(['Today', 'Yesterday', 'This week', 'This month', 'September', 'July 2025']);
});

test('a wrong clock moves no conversation out of its place in the list', () => {
  const now = new Date(2026, 10, 29, 14).getTime();
  const at = (hours: number) => makeConversation(`${hours}`, '', now - hours * 3_600_000, null);
  const namesOf = (...hours: number[]) => groupByDay(hours.map(at), now).map((group) => [group.name, group.conversations.length]);
  const nextYear = -24 * 365;
  expect(namesOf(1, 30, nextYear, 31)).toEqual([['Today', 1], ['Yesterday', 3]]);
  expect(namesOf(24 * 9000, 1, 30)).toEqual([['Today', 2], ['Yesterday', 1]]);
  expect(namesOf(nextYear)).toEqual([['Today', 1]]);
});

test('every code has words and a way out', () => {
  for (const code of ['model_missing', 'model_file_missing', 'model_unreadable', 'model_not_a_file', 'model_empty', 'model_not_gguf', 'model_incomplete', 'model_part', 'model_projector', 'model_draft', 'model_adapter', 'model_unsupported', 'model_broken', 'model_changing', 'template_failed', 'context_full', 'memory_full', 'conversation_missing', 'message_missing', 'busy', 'no_summary', 'disk_full', 'read_only', 'storage', 'engine_unavailable', 'internal']) {
    const problem = problemOf({ code, message: 'detail' }, true);
    expect(problem.code).toBe(code);
    expect(problem.detail).toBe('detail');
    expect(problem.remedies.length).toBeGreaterThan(0);
  }
  expect(problemOf({ code: 'never_heard_of', message: '' }, false).title).toBe('Something went wrong');
  expect(problemOf(new Error('boom'), false)).toMatchObject({ code: 'internal', detail: 'boom' });
  expect(problemOf('text', false).detail).toBe('text');
  expect(problemOf({ code: 'model_missing', message: 'no model to answer with' }, false).detail, 'said once').toBe('');
});

test('what is wrong with a model file is named for what it is', () => {
  const codes = ['model_file_missing', 'model_unreadable', 'model_not_a_file', 'model_empty', 'model_not_gguf', 'model_incomplete', 'model_part', 'model_projector', 'model_draft', 'model_adapter', 'model_unsupported', 'model_broken', 'model_changing'];
  const said = codes.map((code) => problemOf({ code, message: '' }, false));
  expect(new Set(said.map(({ title }) => title)).size).toBe(codes.length);
  // Advice to download a file of gigabytes again is wrong for a wrong path and for an unsupported model.
  const fetching = said.filter(({ advice }) => /fetch it again/i.test(advice)).map(({ code }) => code);
  expect(fetching).toEqual(['model_empty', 'model_incomplete', 'model_broken']);
});

test('a full context offers what the shell offers', () => {
  const full = { event: 'context_full', message: 'm', needed_tokens: 9, at_least: false, too_long: null, limit_tokens: 8, choices: [] as ContextChoice[] } as const;
  const problem = contextProblem({ ...full, choices: ['larger_context', 'compact', 'drop_oldest', 'stop'] });
  expect(problem.remedies).toEqual(['larger_context', 'compact', 'drop_oldest']);
  expect(problem.advice).toBe('It needs 9 tokens, and there is room for 8. The full branch stays whatever you choose.');
  expect(contextProblem(full).remedies).toEqual([]);
});

test('what is too long by itself is named, and what cannot be known is not said', () => {
  const event = { event: 'context_full', message: 'm', needed_tokens: 8194, at_least: true, too_long: 'system_prompt', limit_tokens: 8192, choices: ['edit_system_prompt', 'stop'] } as const;
  const problem = contextProblem({ ...event, choices: [...event.choices] });
  expect(problem.title).toBe('The system prompt is longer than the context');
  expect(problem.advice).toBe(`It needs more than ${count(8192)} tokens, and there is room for no more. Shorten it.`);
  expect(problem.remedies).toEqual(['edit_system_prompt']);
});

test('what a send would cost is said in tokens and time, or that it does not fit', () => {
  const cost = { keeps: 100, of: 16_500, at_least: false, limit: 32_768, read_ms: 38_400 };
  expect(costWords(cost)).toBe(`${count(16_400)} tokens to read, about ${roughly(38_000)}`);
  expect(costWords({ ...cost, read_ms: 300 })).toBe(`${count(16_400)} tokens to read, less than a second`);
  expect(costWords({ ...cost, read_ms: null })).toBe(`${count(16_400)} tokens to read`);
  expect(costWords({ ...cost, at_least: true, of: 8193, limit: 8192 })).toBe(`Does not fit: more than ${count(8192)} tokens`);
  expect(costWords({ ...cost, of: 8192, limit: 8192 }), 'no room for a reply').toContain('Does not fit');
  expect(systemCostWords({ ...cost, keeps: 0, of: 2333, read_ms: 6000 })).toBe(`${count(2333)} tokens will be read again, about ${roughly(6000)}`);
});

test('matches are marked whatever signs the query holds', () => {
  expect(partsOf('a (b) c', [{ start: 2, end: 5 }])).toEqual([{ text: 'a ', match: false }, { text: '(b)', match: true }, { text: ' c', match: false }]);
  expect(partsOf('🙂é𝒳', [{ start: 2, end: 3 }]).map((part) => part.text)).toEqual(['🙂é', '𝒳']);
  expect(partsOf('abc', [])).toEqual([{ text: 'abc', match: false }]);
  const bare = withoutMarkup(partsOf('# …**In a home** `oven` C#', [{ start: 24, end: 26 }]));
  expect(bare.map((part) => part.text).join('')).toBe('…In a home oven C#');
});
