import { expect, test } from 'vitest';
import { estimateHeight, RowHeights, rowsIn } from '../../src/state/rows';

test('offsets add up measured heights and guesses', () => {
  const heights = new RowHeights();
  expect(heights.set('b', 150, 100)).toBe(50);
  expect([...heights.offsets(['a', 'b', 'c'], () => 100)]).toEqual([0, 100, 250, 350]);
  expect(heights.set('b', 150, 100)).toBe(0);
});

test('only rows that touch the view are drawn', () => {
  const heights = new RowHeights();
  const offsets = heights.offsets(Array.from({ length: 1000 }, (_, index) => `${index}`), () => 100);
  expect(rowsIn(offsets, 250, 550)).toEqual([2, 6]);
  expect(rowsIn(offsets, -900, 50)).toEqual([0, 1]);
  expect(rowsIn(offsets, 99_950, 200_000)).toEqual([999, 1000]);
  expect(rowsIn(offsets, 500_000, 600_000)[1]).toBeLessThanOrEqual(1000);
});

test('an empty list draws nothing', () => {
  expect(rowsIn(new RowHeights().offsets([], () => 1), 0, 1000)).toEqual([0, 0]);
});

test('longer texts are guessed higher', () => {
  expect(estimateHeight('a'.repeat(1000), false)).toBeGreaterThan(estimateHeight('a', false));
});

test('a pasted document is guessed at the height it has folded', () => {
  expect(estimateHeight('One line of a paste.\n'.repeat(3000), true)).toBeLessThan(400);
  expect(estimateHeight('One line of a reply.\n'.repeat(3000), false)).toBeGreaterThan(60_000);
});
