import { expect, test } from 'vitest';
import { Announcer } from '../../src/state/announce';

/** The announcements of a text that arrives character by character. */
function spokenLines(text: string, state: 'complete' | 'stopped' = 'complete'): string[] {
  const announcer = new Announcer();
  const lines: string[] = [];
  for (let end = 1; end <= text.length; end += 1) lines.push(...announcer.hear({ text: text.slice(0, end), read: null }));
  return [...lines, ...announcer.end(text, state)];
}

test('a reply is said sentence by sentence, and that it is there', () => {
  expect(spokenLines('One. Two, 3.5 of it!\n\n- **Three**\nand so')).toEqual(['One.', 'Two, 3.5 of it!', 'Three', 'and so', 'Reply finished']);
  expect(spokenLines('这是第一句。第二', 'stopped')).toEqual(['这是第一句。', '第二', 'Reply stopped']);
});

test('marks are not read out, and code is named', () => {
  expect(spokenLines('See [it](https://a.b) now.\n```js\nlet x = "a. b";\n```\nEnd')).toEqual(['See it now.', 'Code in js, 1 line.', 'End', 'Reply finished']);
  expect(spokenLines('| a | b |\n|---|---|\n')).not.toContain('|---|---|');
});

test('what a reasoning model thinks is not read out', () => {
  expect(spokenLines('<think>\nHm. Well.\n</think>\n\nSo.')).toEqual(['So.', 'Reply finished']);
});

test('of a prompt that is read only quarters are said, each once', () => {
  const announcer = new Announcer();
  const lines = Array.from({ length: 101 }, (_, read) => announcer.hear({ text: '', read })).flat();
  expect(lines).toEqual(['25 percent read', '50 percent read', '75 percent read']);
  expect(new Announcer().hear({ text: '', read: 80 })).toEqual(['75 percent read']);
});

test('a reply that goes on says only what is new', () => {
  const announcer = new Announcer('One. Two');
  expect(announcer.hear({ text: 'One. Two three. ', read: null })).toEqual(['three.']);
});
