import { expect, test } from 'vitest';
import { makeMessage } from '../../src/backend/fake/seed';
import { MessageTree } from '../../src/state/tree';
import type { Message } from '../../src/state/types';

function message(id: string, parent: string | null): Message {
  return { ...makeMessage('c', parent, 'user', id, 0), id };
}

//  a ─ b ─ d
//    └ c ─ e ─ f
const tree = new MessageTree([message('a', null), message('b', 'a'), message('c', 'a'), message('d', 'b'), message('e', 'c'), message('f', 'e')]);

test('a branch runs from the root to its leaf', () => {
  expect(tree.branch('f').map((one) => one.id)).toEqual(['a', 'c', 'e', 'f']);
  expect(tree.branch(null)).toEqual([]);
  expect(tree.branch('gone')).toEqual([]);
});

test('siblings are the alternatives of a message, oldest first', () => {
  expect(tree.siblings(tree.get('c') as Message).map((one) => one.id)).toEqual(['b', 'c']);
});

test('turning to a branch goes to where the reader left it, else to its newest end', () => {
  expect(tree.leafUnder('c', new Map())).toBe('f');
  expect(tree.leafUnder('a', new Map())).toBe('f');
  expect(tree.leafUnder('a', new Map([['a', 'b']]))).toBe('d');
  expect(tree.leafUnder('a', new Map([['a', 'gone']]))).toBe('f');
});

test('a changed message takes the place of the old one and new ones come last', () => {
  const next = tree.with([{ ...message('b', 'a'), text: 'new' }, message('g', 'f')]);
  expect(next.get('b')?.text).toBe('new');
  expect(next.newestLeaf()).toBe('g');
  expect(tree.get('b')?.text).toBe('b');
});

test('a circle of parents ends all the same', () => {
  const circle = new MessageTree([message('x', 'y'), message('y', 'x')]);
  expect(circle.branch('x').length).toBeLessThan(5);
  expect(circle.leafUnder('x', new Map())).toBeDefined();
});
