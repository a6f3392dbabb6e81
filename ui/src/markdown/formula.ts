// Formulas are shown as they were written: read as Markdown they would lose their backslashes and gain emphasis. Longer ones
// than a page are none; what opens and never ends is looked through no further.
import type { MarkedExtension, Tokens } from 'marked';
import { escapeHtml } from './highlight';

const BLOCK = /^ {0,3}(?:\$\$([\s\S]{1,2000}?)\$\$|\\\[([\s\S]{1,2000}?)\\\])[ \t]*(?:\n+|$)/;
// A formula that is still streaming: its opening delimiter stands alone on its line, and no blank line follows.
const OPEN = /^ {0,3}(?:\$\$|\\\[)[ \t]*\n((?:[^\n]*\S[^\n]*(?:\n|$))+)$/;
// A dollar is money, or a name in a shell, unless it stands close to what it encloses and no letter or number follows.
const INLINE = /^(?:\\\(([\s\S]{1,2000}?)\\\)|\\\[([\s\S]{1,2000}?)\\\]|\$\$([^$`]{1,2000}?)\$\$|\$(?![\s$])([^$`\n]{0,500}?[^\s$`\\])\$(?![\w$]))/;

const ENVIRONMENT = /^ {0,3}\\begin\{([A-Za-z]{1,20}\*?)\}/;
const LONGEST_FORMULA = 2000;
const LONGEST_ENVIRONMENT = 8000;
const BLANK_LINE = /\n[ \t]*(?:\n|$)/;

const source = (match: RegExpExecArray) => match.slice(1).find((part) => part !== undefined)?.trim() ?? '';
const at = (found: number, offset = 0) => (found === -1 ? undefined : found + offset);

const CLOSING: Record<string, string> = { '\\(': '\\)', '\\[': '\\]', '$$': '$$' };

/** Whether the formula that begins the text is closed. A plain search for the delimiter is faster than the pattern. */
function isClosed(text: string): boolean {
  const end = CLOSING[text.slice(0, 2)];
  return end === undefined || text.slice(2, LONGEST_FORMULA + 4).includes(end);
}

/** A bare `\begin{…}` up to its `\end`. It cannot contain a blank line; an unclosed one is open and ends before the next blank line. */
function environment(text: string): { raw: string; closed: boolean } | undefined {
  const name = ENVIRONMENT.exec(text)?.[1];
  if (name === undefined) return undefined;
  const rest = text.slice(0, LONGEST_ENVIRONMENT);
  const blank = BLANK_LINE.exec(rest);
  const within = blank ? rest.slice(0, blank.index) : rest;
  let depth = 0;
  for (const sign of within.matchAll(/\\(begin|end)\{([A-Za-z]+\*?)\}/g)) {
    if (sign[2] !== name) continue;
    depth += sign[1] === 'begin' ? 1 : -1;
    if (depth === 0) return { raw: within.slice(0, sign.index + sign[0].length), closed: true };
  }
  return { raw: within, closed: false };
}

/** The environment as a block token: alone on its lines, or still open. */
function environmentBlock(text: string): Tokens.Generic | undefined {
  const found = environment(text);
  if (!found) return undefined;
  const after = /^[ \t]*[.,;]?[ \t]*(?:\n+|$)/.exec(text.slice(found.raw.length))?.[0];
  if (after === undefined && found.closed) return undefined;
  return { type: 'formulaBlock', raw: found.raw + (after ?? ''), text: (found.raw + (after ?? '')).trim() };
}

export const formulas: MarkedExtension = {
  extensions: [
    {
      name: 'formulaBlock',
      level: 'block',
      start: (text) => at(text.search(/\n {0,3}(?:\$\$|\\\[|\\begin\{)/), 1),
      tokenizer(text) {
        const match = BLOCK.exec(text);
        if (match) return { type: 'formulaBlock', raw: match[0], text: source(match) };
        const open = OPEN.exec(text);
        return open ? { type: 'formulaBlock', raw: open[0], text: open[1].trim() } : environmentBlock(text);
      },
      renderer: ({ text }: Tokens.Generic) => `<pre class="formula" dir="ltr" tabindex="0" role="region" aria-label="Formula"><code>${escapeHtml(text)}</code></pre>\n`,
    },
    {
      name: 'formula',
      level: 'inline',
      // The parser stops at backslashes anyway. Called at every character, so it searches for `$` only.
      start: (text) => at(text.indexOf('$')),
      tokenizer(text) {
        if (!isClosed(text)) return undefined;
        const match = INLINE.exec(text);
        if (match) return { type: 'formula', raw: match[0], text: source(match) };
        const found = environment(text);
        return found?.closed ? { type: 'formula', raw: found.raw, text: found.raw.trim() } : undefined;
      },
      renderer: ({ text }: Tokens.Generic) => `<code class="formula" dir="ltr">${escapeHtml(text)}</code>`,
    },
  ],
};
