// A reply grows at its end. Blocks before the last one are finished and keep their HTML; only the tail is parsed again.
import type { Token, Tokens } from 'marked';
import { marked, plain, renderItem, renderTokens } from './render';
import { lexPart } from './sources';
import { isTangled } from './tangle';

export interface Block {
  /** Where the block starts in the text; it names the block while the text grows. */
  start: number;
  html: string;
}

// Longer than any reply; what is longer is shown, not set.
const LONGEST = 400_000;

const DEFINITION = /^ {0,3}\[[^\]\n]+\]:/m;
const FORMULA = /^ {0,3}(?:\$\$|\\\[|\\begin\{)/m;
const FENCE_END = /\n[ \t]*(?:`{3,}|~{3,})\s*$/;

export class MarkdownBlocks {
  private text = '';
  private blocks: Block[] = [];
  private growing = false;
  /** The items of the last list as they were set, by what they were set from. */
  private items = new Map<string, string>();

  /** The blocks of the text; cheap when it continues the text given before. `growing`: more may follow. */
  update(given: string, growing = false): readonly Block[] {
    const text = given.replace(/\r\n?/g, '\n');
    if (text === this.text && growing === this.growing && this.blocks.length) return this.blocks;
    if (!growing && this.growing && changesBefore(text)) this.text = '';
    this.growing = growing;
    const grows = this.text !== '' && text.startsWith(this.text);
    const tail = grows ? this.blocks.at(-1) : undefined;
    const kept = tail ? this.blocks.slice(0, -1) : [];
    this.blocks = [...kept, ...this.parse(text, tail?.start ?? 0)];
    this.text = text;
    return this.blocks;
  }

  private parse(text: string, from: number): Block[] {
    const source = text.slice(from);
    if (!source.trim()) return [];
    if (source.length > LONGEST || isTangled(source)) return [{ start: from, html: plain(source) }];
    try {
      return this.lex(source, text, from);
    } catch {
      return [{ start: from, html: plain(source) }];
    }
  }

  private lex(source: string, whole: string, from: number): Block[] {
    const blocks: Block[] = [];
    // The raw texts of the tokens add up to the source, so positions can be counted on them.
    let start = from;
    for (const token of lexPart(marked, source, whole)) {
      if (token.type !== 'space' && token.type !== 'def') blocks.push({ start, html: this.render(token) });
      start += token.raw.length;
    }
    return blocks;
  }

  private render(token: Token): string {
    if (this.growing && token.type === 'list') return this.renderList(token as Tokens.List);
    const open = this.growing && token.type === 'code' && !FENCE_END.test(token.raw);
    return renderTokens([open ? { ...token, open } : token], token.raw);
  }

  /** A list that grows is one block; only its last item is new. */
  private renderList(list: Tokens.List): string {
    const items = new Map<string, string>();
    const set = list.items.map((item) => {
      const key = `${item.loose} ${item.raw}`;
      const html = items.get(key) ?? this.items.get(key) ?? renderItem(list, item);
      items.set(key, html);
      return html;
    });
    this.items = items;
    const start = list.ordered && list.start !== 1 ? ` start="${Number(list.start)}"` : '';
    const tag = list.ordered ? 'ol' : 'ul';
    return `<${tag}${start}>\n${set.join('\n')}\n</${tag}>\n`;
  }
}

/** Whether later text can change how earlier blocks are parsed: a link may be defined after its use, a formula may hold blank lines. */
function changesBefore(text: string): boolean {
  return DEFINITION.test(text) || FORMULA.test(text) || text.length > LONGEST || isTangled(text);
}
