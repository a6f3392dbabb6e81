import { expect, test } from 'vitest';
import { readNumber } from '../../src/state/numbers';
import { parseStops, showStops } from '../../src/state/stops';

test('a typed number is taken as it stands, means none, or is refused with a word', () => {
  const range = { min: 1, max: 100_000, whole: true, none: [0, -1] };
  expect(readNumber(' 40 ', range)).toBe(40);
  expect(readNumber('', range)).toBeNull();
  expect(readNumber('0', range)).toBeNull();
  expect(readNumber('\u22121', range)).toBeNull();
  expect(readNumber('-2', range)).toBe('Not used: it has to be from 1 to 100\u2009000.');
  expect(readNumber('1.5', range)).toBe('Not used: it has to be a whole number.');
  expect(readNumber('many', range)).toBe('This is not a number.');
  expect(readNumber('0,25', { min: 0, max: 1 })).toBe(0.25);
});

test('stop strings with line ends, tabs and backslashes can be typed and are shown as they were', () => {
  const stops = ['\n\nUser:', 'a\tb', 'C:\\new', '\r\n', ' spaced '];
  expect(parseStops(showStops(stops))).toEqual(stops);
  expect(parseStops('\\n###\n\nEND')).toEqual(['\n###', 'END']);
  expect(parseStops('\\d+'), 'no sign of ours').toEqual(['\\d+']);
});
