// Markdown was made for text with spaces between its words. What is different where there are none, or where marks are wide:
// emphasis beside a mark or a letter (the "CommonMark CJK-friendly" amendment), addresses, ranges and lines.
import { Tokenizer, type MarkedExtension } from 'marked';
import cjkFriendly from 'marked-cjk-friendly';

/** Scripts that set no spaces between words and are not of those the amendment names. */
const SPACELESS = /[\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}\p{Script=Tibetan}]/gu;
const WIDE = '[\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}\\u3001-\\u303f\\uff01-\\uff60]';
const LINE_BREAK = new RegExp(`(${WIDE})\\n(?=${WIDE})`, 'gu');
/** Wide and other marks that end an address: letters of any script may belong to one, these never do. */
const ENDS_ADDRESS = /[\u060c\u061b\u061f\u0964\u0965\u201c-\u201f\u2026\u3000-\u3004\u3008-\u3020\u3030\u303d\ufe10-\ufe1f\ufe30-\ufe6f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65\u00ab\u00bb]|\u2014{2}/;

/** Lines of a paragraph are joined without a space where the script has none. */
export function joinLines(text: string): string {
  return text.replace(LINE_BREAK, '$1');
}

export const scripts: MarkedExtension[] = [
  cjkFriendly(),
  {
    // The amendment reads the text beside a delimiter from here: any letter it knows stands for all that set no spaces.
    hooks: { emStrongMask: (source: string) => source.replace(SPACELESS, '\u4e00') },
    tokenizer: {
      emStrong(source, _masked, before = '') {
        // A product: 10*20*30 cm.
        return /^\*\d/.test(source) && /\d/.test(before) ? undefined : false;
      },
      del(source) {
        // A range: 5~10 and 20~30. What is struck out is written with two.
        return /^~(?!~)/.test(source) ? undefined : false;
      },
      url(source) {
        // What is no address is none of any length: this is asked at every sign, and must not look through all that follows.
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
