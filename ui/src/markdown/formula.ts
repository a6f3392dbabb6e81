// Formulas are shown as they were written: read as Markdown they would lose their backslashes and gain emphasis. Longer ones
// than a page are none; what opens and never ends is looked through no further.
import type { MarkedExtension, Tokens } from 'marked';
import { escapeHtml } from './highlight';

const BLOCK = /^ {0,3}(?:\$\$([\s\S]{1,2000}?)\$\$|\\\[([\s\S]{1,2000}?)\\\])[ \t]*(?:\n+|$)/;
// A dollar is money, or a name in a shell, unless it stands close to what it encloses and no letter or number follows.
const INLINE = /^(?:\\\(([\s\S]{1,2000}?)\\\)|\\\[([\s\S]{1,2000}?)\\\]|\$\$([^$`]{1,2000}?)\$\$|\$(?![\s$])([^$`\n]{0,500}?[^\s$`\\])\$(?![\w$]))/;

const source = (match: RegExpExecArray) => match.slice(1).find((part) => part !== undefined)?.trim() ?? '';
const at = (found: number, offset = 0) => (found === -1 ? undefined : found + offset);

export const formulas: MarkedExtension = {
  extensions: [
    {
      name: 'formulaBlock',
      level: 'block',
      start: (text) => at(text.search(/\n {0,3}(?:\$\$|\\\[)/), 1),
      tokenizer(text) {
        const match = BLOCK.exec(text);
        return match ? { type: 'formulaBlock', raw: match[0], text: source(match) } : undefined;
      },
      renderer: ({ text }: Tokens.Generic) => `<pre class="formula" dir="ltr" tabindex="0" role="region" aria-label="Formula"><code>${escapeHtml(text)}</code></pre>\n`,
    },
    {
      name: 'formula',
      level: 'inline',
      start: (text) => at(text.search(/\\[([]|\$/)),
      tokenizer(text) {
        const match = INLINE.exec(text);
        return match ? { type: 'formula', raw: match[0], text: source(match) } : undefined;
      },
      renderer: ({ text }: Tokens.Generic) => `<code class="formula" dir="ltr">${escapeHtml(text)}</code>`,
    },
  ],
};
