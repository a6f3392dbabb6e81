// A list of sources, `[1]: https://…`, is parsed by Markdown as link definitions, which are not rendered. Definitions that nothing
// refers to are meant to be read, so they are rendered.
import { Lexer, type Marked, type MarkedExtension, type Token, type Tokens } from 'marked';

const CODE = /^[ \t]*(`{3,}|~{3,})[^\n]*\n[\s\S]*?(?:\n[ \t]*\1|$(?![\s\S]))|`[^`\n]+`/gm;
const DEFINITION = /^[ \t>*+-]*\[[^\]\n]+\]:/gm;
const REFERENCE = /\[([^[\]\n]+)\]/g;

const labelOf = (text: string) => text.trim().replace(/\s+/g, ' ').toLowerCase();

/** Lexes a part of a text, with the link references of the whole text. */
class PartLexer extends Lexer {
  private readonly whole: string;
  private known: Set<string> | null = null;

  constructor(marked: Marked, whole: string) {
    super({ ...marked.defaults });
    this.whole = whole;
  }

  refersTo(label: string): boolean {
    this.known ??= new Set([...this.whole.replace(CODE, ' ').replace(DEFINITION, ' ').matchAll(REFERENCE)].map((match) => labelOf(match[1])));
    return this.known.has(labelOf(label));
  }
}

/** Lexes a part of a text into tokens. */
export function lexPart(marked: Marked, part: string, whole: string): Token[] {
  return new PartLexer(marked, whole).lex(part);
}

export const sources: MarkedExtension = {
  extensions: [
    {
      name: 'sources',
      level: 'block',
      tokenizer(text) {
        const lexer = this.lexer;
        if (!(lexer instanceof PartLexer) || !/^ {0,3}\[/.test(text)) return undefined;
        const lines: Token[][] = [];
        let raw = '';
        for (let next = definition(lexer, text); next; next = definition(lexer, text.slice(raw.length))) {
          lines.push(lexer.inline(next.trim()));
          raw += next;
        }
        return raw ? { type: 'sources', raw, lines } : undefined;
      },
      renderer({ lines }: Tokens.Generic) {
        return `<p dir="auto">${(lines as Token[][]).map((line) => this.parser.parseInline(line)).join('<br>')}</p>\n`;
      },
    },
  ],
};

/** The link definition at the start of the text, with its line end, if nothing refers to it. */
function definition(lexer: PartLexer, text: string): string | undefined {
  const found = lexer.options.tokenizer?.def(text);
  if (!found || lexer.refersTo(found.tag)) return undefined;
  return found.raw + (text[found.raw.length] === '\n' ? '\n' : '');
}
