// Text folding for search, by the rules of `store/src/fold.rs`: ignores case, diacritics, composition, width and invisible
// characters. `store/tests/fixtures/search.json` tests both.

const DROPPED = /[\u0300-\u036f\u0591-\u05bd\u05bf-\u05c7\u0640\u064b-\u065f\u0670]/u;
const UNSEEN = /[\u00ad\u061c\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\u{e0000}-\u{e0fff}]/u;
const MARK = /\p{M}/u;
const LETTER = /[\p{Alphabetic}\p{N}\p{M}]/u;
const UNSPACED = /[\u0e00-\u109f\u1100-\u11ff\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf\u1b00-\u1b7f\u2e80-\ua4cf\ua960-\ua97f\ua980-\ua9ff\uaa60-\uaa7f\uaa80-\uaadf\uac00-\ud7ff\uf900-\ufaff\u{20000}-\u{3ffff}]/u;
const ALIKE: Record<string, string> = { ς: 'σ', ı: 'i', ß: 'ss', '‘': "'", '’': "'", '‛': "'", ʼ: "'", '“': '"', '”': '"', '„': '"', '‟': '"', '‐': '-', '‑': '-' };
const clusters = new Intl.Segmenter(undefined, { granularity: 'grapheme' });

/** The folded text, with the origin of each of its UTF-16 units. */
export class Folded {
  readonly text: string;
  /** For each cluster: its start in the folded text, and its start and end in the original. */
  private readonly at: number[] = [];
  private readonly from: number[] = [];
  private readonly to: number[] = [];

  constructor(original: string) {
    let text = '';
    const add = (start: number, end: number, folded: string) => {
      if (!folded) return;
      this.at.push(text.length);
      this.from.push(start);
      this.to.push(end);
      text += folded;
    };
    const isAscii = (index: number) => original.charCodeAt(index) < 128;
    for (let start = 0; start < original.length; ) {
      if (isAscii(start) && (start + 1 === original.length || isAscii(start + 1))) {
        add(start, start + 1, foldAscii(original[start]));
        start += 1;
        continue;
      }
      let end = start + 1;
      while (end < original.length && !isAscii(end)) end += 1;
      for (const { segment, index } of clusters.segment(original.slice(start, end))) {
        add(start + index, start + index + segment.length, foldCluster(segment));
      }
      start = end;
    }
    this.text = text;
  }

  /** The range of whole characters in the original that a range of the folded text comes from. */
  original(start: number, end: number): [start: number, end: number] {
    return [this.from[this.cluster(start)], this.to[this.cluster(Math.max(end, start + 1) - 1)]];
  }

  private cluster(unit: number): number {
    let low = 0;
    let high = this.at.length;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.at[middle] <= unit) low = middle;
      else high = middle;
    }
    return low;
  }
}

export function fold(text: string): string {
  return new Folded(text).text;
}

function foldAscii(char: string): string {
  return char < ' ' || char === '\u007f' ? ' ' : char.toLowerCase();
}

function foldCluster(cluster: string): string {
  let base = ' ';
  let folded = '';
  for (const char of cluster.normalize('NFKD').toLowerCase()) {
    if (!MARK.test(char)) base = char;
    const makesAnother = char === '\u0306' && base >= '\u0400' && base <= '\u052f';
    if (UNSEEN.test(char) || (DROPPED.test(char) && !makesAnother)) continue;
    folded += ALIKE[char] ?? (/\p{Cc}/u.test(char) ? ' ' : char);
  }
  return folded.normalize('NFC');
}

/** A parsed query: words (search over all conversations), or one phrase that also matches inside of words (find). */
export interface Sought {
  readonly parts: readonly string[];
  readonly isPhrase: boolean;
}

export function soughtWords(query: string): Sought {
  return { parts: fold(query).split(/\s+/u).filter(Boolean), isPhrase: false };
}

export function soughtPhrase(text: string): Sought {
  const phrase = fold(text).trim();
  return { parts: phrase ? [phrase] : [], isPhrase: true };
}

/** The ranges of all matches in the original, in order, and whether every part of the query matches. */
export function placesOf(text: string, sought: Sought): { places: [start: number, end: number][]; all: boolean } {
  const folded = new Folded(text);
  const places: [number, number][] = [];
  let all = sought.parts.length > 0;
  sought.parts.forEach((part, index) => {
    const found = sought.isPhrase ? phrases(folded.text, part) : words(folded.text, part, index === sought.parts.length - 1);
    all &&= found.length > 0;
    for (const [start, end] of found) places.push(folded.original(start, end));
  });
  return { places: places.sort((a, b) => a[0] - b[0] || a[1] - b[1]), all };
}

function phrases(folded: string, phrase: string): [number, number][] {
  const pattern = phrase.split(/\s+/u).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('\\s+');
  return [...folded.matchAll(new RegExp(pattern, 'gu'))].map((match) => [match.index, match.index + match[0].length]);
}

/** Matches whole words where the script separates words; the last word of an unfinished query may match a beginning. */
function words(folded: string, word: string, unfinished: boolean): [number, number][] {
  const found: [number, number][] = [];
  const chars = [...word];
  for (let from = 0; ; ) {
    const start = folded.indexOf(word, from);
    if (start < 0) return found;
    const end = start + word.length;
    const begins = !isLetter(chars[0]) || !isLetter(charBefore(folded, start));
    const ends = unfinished || !isLetter(chars[chars.length - 1]) || !isLetter(charAt(folded, end));
    if (begins && ends) found.push([start, end]);
    from = begins && ends ? end : start + chars[0].length;
  }
}

function isLetter(char: string): boolean {
  return char !== '' && LETTER.test(char) && !UNSPACED.test(char);
}

function charAt(text: string, index: number): string {
  return index < text.length ? String.fromCodePoint(text.codePointAt(index) as number) : '';
}

function charBefore(text: string, index: number): string {
  const low = index > 1 && /[\udc00-\udfff]/.test(text[index - 1]);
  return low ? text.slice(index - 2, index) : index > 0 ? text[index - 1] : '';
}
