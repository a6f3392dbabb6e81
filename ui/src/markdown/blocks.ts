// A reply grows at its end. Blocks before the last one are finished and keep their HTML; only the tail is parsed again.
import { marked, plain, renderTokens } from './render';
import { isTangled } from './tangle';

export interface Block {
  /** Where the block starts in the text; it names the block while the text grows. */
  start: number;
  html: string;
}

// Longer than any reply; what is longer is shown, not set.
const LONGEST = 400_000;

export class MarkdownBlocks {
  private text = '';
  private blocks: Block[] = [];

  /** The blocks of the text; cheap when it continues the text given before. */
  update(given: string): readonly Block[] {
    const text = given.replace(/\r\n?/g, '\n');
    if (text === this.text && this.blocks.length) return this.blocks;
    const grows = this.text !== '' && text.startsWith(this.text);
    const tail = grows ? this.blocks.at(-1) : undefined;
    const kept = tail ? this.blocks.slice(0, -1) : [];
    this.blocks = [...kept, ...parse(text, tail?.start ?? 0)];
    this.text = text;
    return this.blocks;
  }
}

function parse(text: string, from: number): Block[] {
  const source = text.slice(from);
  if (!source.trim()) return [];
  if (source.length > LONGEST || isTangled(source)) return [{ start: from, html: plain(source) }];
  try {
    return lex(source, from);
  } catch {
    return [{ start: from, html: plain(source) }];
  }
}

function lex(source: string, from: number): Block[] {
  const blocks: Block[] = [];
  // The raw texts of the tokens add up to the source, so positions can be counted on them.
  let start = from;
  for (const token of marked.lexer(source)) {
    if (token.type !== 'space' && token.type !== 'def') blocks.push({ start, html: renderTokens([token], token.raw) });
    start += token.raw.length;
  }
  return blocks;
}
