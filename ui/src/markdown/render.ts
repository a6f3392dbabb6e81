// Model output is untrusted. HTML in it is shown as text, links carry no href (the webview cannot follow them), images are
// named and not loaded, and what the renderer makes is sanitised once more with a short list of tags.
import DOMPurify from 'dompurify';
import { Marked, type Token, type Tokens } from 'marked';
import { formulas } from './formula';
import { escapeHtml, highlight, highlightStart } from './highlight';
import { scripts } from './scripts';
import { sources } from './sources';

// Inline tags that models write in Markdown, taken only bare: no attributes.
const BARE_TAG = /^<(\/?)(br|sub|sup|kbd|mark)\s*\/?>$/i;

const ALLOWED_TAGS = [
  'p', 'br', 'hr', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'ul', 'ol', 'li', 'blockquote', 'pre', 'code', 'em', 'strong', 'del', 'sub', 'sup', 'kbd', 'mark',
  'a', 'span', 'div', 'table', 'thead', 'tbody', 'tr', 'th', 'td', 'button', 'input',
];
const ALLOWED_ATTR = ['class', 'dir', 'start', 'data-link', 'data-copy', 'data-wrap', 'data-unfold', 'data-language', 'role', 'tabindex', 'title', 'type', 'checked', 'disabled', 'data-align', 'aria-label', 'aria-pressed', 'aria-expanded'];

export const marked = new Marked({
  gfm: true,
  breaks: false,
  renderer: {
    html({ text }) {
      const bare = BARE_TAG.exec(text.trim());
      return bare ? `<${bare[1]}${bare[2].toLowerCase()}>` : escapeHtml(text);
    },
    link({ href, title, tokens }) {
      const inner = this.parser.parseInline(tokens);
      const url = safeUrl(href);
      if (!url) return inner;
      const shown = escapeHtml(title ? `${title} · ${url}` : url);
      return `<a role="link" tabindex="0" data-link="${escapeHtml(url)}" title="${shown}">${inner}</a>`;
    },
    image({ href, text }) {
      const name = escapeHtml(text || 'image');
      const url = safeUrl(href);
      return url ? `<a role="link" tabindex="0" data-link="${escapeHtml(url)}" title="${escapeHtml(url)}">[${name}]</a>` : `[${name}]`;
    },
    code({ text, lang, open }: Tokens.Code & { open?: boolean }) {
      const language = (lang ?? '').trim().split(/\s+/)[0].toLowerCase();
      const label = language ? `<span class="code-language">${escapeHtml(language)}</span>` : '<span class="code-language"></span>';
      const copy = '<button type="button" class="code-copy" data-copy="code">Copy</button>';
      const wrap = '<button type="button" class="code-copy code-wrap" data-wrap="code" aria-pressed="false" title="Wrap long lines">Wrap</button>';
      // Visible only while the block is folded.
      const all = '<button type="button" class="code-all" data-unfold="code" aria-expanded="false">Show all</button>';
      return `<div class="code" dir="ltr"><div class="code-head">${label}${wrap}${copy}</div><pre tabindex="0" role="region" aria-label="Code"><code>${open ? highlightStart(text, language) : highlight(text, language)}</code></pre>${all}</div>`;
    },
    checkbox({ checked }) {
      return `<input type="checkbox" disabled aria-label="${checked ? 'Done' : 'To do'}"${checked ? ' checked' : ''}> `;
    },
    paragraph({ tokens }) {
      return `<p dir="auto">${this.parser.parseInline(tokens)}</p>`;
    },
    heading({ tokens, depth }) {
      return `<h${depth} dir="auto">${this.parser.parseInline(tokens)}</h${depth}>`;
    },
    blockquote({ tokens }) {
      return `<blockquote dir="auto">${this.parser.parse(tokens)}</blockquote>`;
    },
    table(token) {
      return `<div class="table" tabindex="0" role="region" aria-label="Table"><table>${tableHead(this.parser, token)}${tableBody(this.parser, token)}</table></div>`;
    },
  },
});

marked.use(formulas, sources, ...scripts);

type Parser = { parseInline(tokens: Token[]): string };

function tableHead(parser: Parser, { header }: Tokens.Table): string {
  return `<thead><tr>${header.map((cell) => tableCell(parser, cell, 'th')).join('')}</tr></thead>`;
}

function tableBody(parser: Parser, { rows }: Tokens.Table): string {
  return `<tbody>${rows.map((row) => `<tr>${row.map((cell) => tableCell(parser, cell, 'td')).join('')}</tr>`).join('')}</tbody>`;
}

function tableCell(parser: Parser, { tokens, align }: Tokens.TableCell, tag: 'th' | 'td'): string {
  return `<${tag} dir="auto" data-align="${align ?? ''}">${parser.parseInline(tokens)}</${tag}>`;
}

/** Web and mail addresses only, in their normal form. */
export function safeUrl(href: string): string | null {
  try {
    const url = new URL(href);
    return ['https:', 'http:', 'mailto:'].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

export function sanitise(html: string): string {
  return DOMPurify.sanitize(html, { ALLOWED_TAGS, ALLOWED_ATTR, ALLOW_DATA_ATTR: false, ALLOW_ARIA_ATTR: false });
}

/** One block of Markdown as safe HTML. What the parser cannot take is shown as plain text. */
export function renderTokens(tokens: Token[], raw: string): string {
  try {
    return sanitise(marked.parser(tokens));
  } catch {
    return plain(raw);
  }
}

/** One item of a list as safe HTML. */
export function renderItem(list: Tokens.List, item: Tokens.ListItem): string {
  const html = renderTokens([{ ...list, items: [item] }], item.raw);
  const [from, to] = [html.indexOf('<li'), html.lastIndexOf('</li>')];
  return from === -1 || to === -1 ? `<li>${html}</li>` : html.slice(from, to + '</li>'.length);
}

export function plain(raw: string): string {
  return `<p dir="auto" class="plain">${escapeHtml(raw)}</p>`;
}
