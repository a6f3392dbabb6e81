// Markdown assumes spaces between words. Corrections for scripts without spaces and with full-width punctuation: emphasis beside
// punctuation or a letter (the "CommonMark CJK-friendly" amendment), addresses, ranges and line breaks.
import { Tokenizer, type MarkedExtension } from 'marked';
import cjkFriendly from 'marked-cjk-friendly';

/** Scripts without spaces between words that the amendment does not cover. */
const SPACELESS = /[\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}\p{Script=Tibetan}]/gu;
const WIDE = '[\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}\\u3001-\\u303f\\uff01-\\uff60]';
const LINE_BREAK = new RegExp(`(${WIDE})\\n(?=${WIDE})`, 'gu');
/** Punctuation that ends an address. Letters of any script may be part of one. */
const ENDS_ADDRESS = /[\u060c\u061b\u061f\u0964\u0965\u201c-\u201f\u2026\u3000-\u3004\u3008-\u3020\u3030\u303d\ufe10-\ufe1f\ufe30-\ufe6f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65\u00ab\u00bb]|\u2014{2}/;

/** Joins the lines of a paragraph, without a space between letters of a script that has none. */
export function joinLines(text: string): string {
  return text.replace(LINE_BREAK, '$1');
}

export const scripts: MarkedExtension[] = [
  cjkFriendly(),
  {
    // The amendment looks at the characters beside a delimiter. One Han letter stands in for every letter it does not cover.
    hooks: { emStrongMask: (source: string) => source.replace(SPACELESS, '\u4e00') },
    tokenizer: {
      emStrong(source, _masked, before = '') {
        // A product: 10*20*30 cm.
        return /^\*\d/.test(source) && /\d/.test(before) ? undefined : false;
      },
      del(source) {
        // A range: 5~10 and 20~30. Strikethrough needs two tildes.
        return /^~(?!~)/.test(source) ? undefined : false;
      },
      url(source) {
        // Called at every character: an address that does not match is decided without scanning the rest of the text.
        const whole = Tokenizer.prototype.url.call(this, source);
        const end = whole ? whole.raw.search(ENDS_ADDRESS) : -1;
        return end === -1 ? whole : Tokenizer.prototype.url.call(this, source.slice(0, end));
      },
    },
    renderer: {
      text(token) {
        token.text = joinLines(token.text);
        return false;
      },
    },
  },
];
