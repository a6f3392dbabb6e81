// Screen reader announcements for a streaming reply: its start, the progress of prefill, its text sentence by sentence, its end.
// Pure: takes snapshots of the stream and returns lines.
import { splitThought } from '../markdown/thought';
import type { MessageState } from './types';

const SENTENCE_END = /[.!?…][)\]"'”’]*\s|[。！？।။។]|\n/g;
const FENCE = /^[ \t]*(`{3,}|~{3,})[ \t]*(\S*)/;
const ENDED: Partial<Record<MessageState, string>> = {
  complete: 'Reply finished',
  stopped: 'Reply stopped',
  length: 'The reply reached its length limit',
  context_full: 'The context is full',
  failed: 'The reply broke off',
};
const QUARTERS = [25, 50, 75];

/** The part of a stream that is announced. */
export interface Heard {
  text: string;
  /** The share of the prompt that is read, in percent; null if there is no progress to report. */
  read: number | null;
}

/** Announces one reply. */
export class Announcer {
  private said = 0;
  private quarter = 0;
  private fence: { sign: string; language: string; lines: number } | null = null;

  /** `before`: text that the reply already had. */
  constructor(before = '') {
    this.said = splitThought(before, 'generating').answer.length;
  }

  begin(): string {
    return 'A reply is being written';
  }

  /** The new lines since the last call. */
  hear({ text, read }: Heard): string[] {
    const lines: string[] = [];
    const quarter = read === null ? 0 : Math.max(0, ...QUARTERS.filter((part) => read >= part));
    if (quarter > this.quarter) {
      this.quarter = quarter;
      lines.push(`${quarter} percent read`);
    }
    return lines.concat(this.sentences(splitThought(text, 'generating').answer, false));
  }

  /** The rest of the text, and the state in which the reply ended. */
  end(text: string, state: MessageState = 'complete'): string[] {
    return [...this.sentences(splitThought(text, state).answer, true), ENDED[state] ?? 'Reply ended'];
  }

  private sentences(answer: string, all: boolean): string[] {
    let end = all ? answer.length : this.said;
    if (!all) for (const sign of answer.slice(this.said).matchAll(SENTENCE_END)) end = this.said + sign.index + sign[0].length;
    // A line is recognised as a code fence only when it is complete.
    const line = answer.slice(answer.lastIndexOf('\n', end - 1) + 1, end);
    if (!all && (this.fence || FENCE.test(line))) end -= line.length;
    if (end <= this.said) return [];
    const said = this.words(answer.slice(this.said, end), all);
    this.said = end;
    return said ? [said] : [];
  }

  /** Plain words without Markdown; a code block is announced by name only. */
  private words(part: string, all: boolean): string {
    const words: string[] = [];
    for (const line of part.replace(/\n$/, '').split('\n')) {
      const mark = FENCE.exec(line);
      if (this.fence) {
        if (mark?.[1].startsWith(this.fence.sign)) words.push(this.closeFence());
        else this.fence.lines += 1;
      } else if (mark) this.fence = { sign: mark[1], language: mark[2], lines: 0 };
      else words.push(withoutMarks(line));
    }
    if (all && this.fence) words.push(this.closeFence());
    return words.filter(Boolean).join(' ');
  }

  private closeFence(): string {
    const { language, lines } = this.fence as { language: string; lines: number };
    this.fence = null;
    return `Code${language ? ` in ${language}` : ''}, ${lines === 1 ? '1 line' : `${lines} lines`}.`;
  }
}

/** Strips the Markdown of a line. */
function withoutMarks(line: string): string {
  const bare = line.replace(/^[ \t]*(?:#{1,6}|>|[-*+]|\d+[.)])[ \t]+/, '').replace(/\[([^\]]*)\]\([^)]*\)/g, '$1');
  const plain = bare.replace(/\*{1,3}(?=\S)|__|~~|`/g, '').replace(/(\S)\*{1,3}/g, '$1');
  return plain.replace(/^[ \t|:-]+$/, '').trim();
}
