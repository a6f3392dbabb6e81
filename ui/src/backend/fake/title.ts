// The title rules of `store/src/title.rs`; `store/tests/fixtures/titles.json` tests both.

const MADE = 60;
const GIVEN = 200;
const LEFT_OUT = /[\u0000-\u0008\u000e-\u001b\u001c-\u001f\u007f-\u0084\u0086-\u009f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]/gu;
const clusters = new Intl.Segmenter(undefined, { granularity: 'grapheme' });

/** A title for a conversation without one: the first meaningful line of its first message. */
export function titleFrom(text: string): string {
  const lines = text.split(/\r?\n/).map((line) => withoutMarks(oneLine(line)));
  return cut(lines.find((line) => line && !/^(```|~~~)/.test(line)) ?? '', MADE);
}

/** Normalises a title that a person has typed. */
export function titleOf(given: string): string {
  return cut(oneLine(given), GIVEN);
}

function oneLine(text: string): string {
  return text.replace(LEFT_OUT, '').split(/[\s\u0085]+/u).filter(Boolean).join(' ');
}

function withoutMarks(line: string): string {
  const rest = /^(?:#{1,6}(?!#)(?= |$)|>|[-*+](?= |$))(.*)$/u.exec(line);
  return rest ? withoutMarks(rest[1].trim()) : line;
}

function cut(line: string, most: number): string {
  const parts = [...clusters.segment(line)];
  if (parts.length <= most) return line;
  const head = line.slice(0, parts[most].index);
  const space = head.lastIndexOf(' ');
  return `${head.slice(0, space > head.length / 2 ? space : head.length).trimEnd()}…`;
}
