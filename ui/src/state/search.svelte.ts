import type { Backend } from '../backend/backend';
import { problemOf, type Problem } from './problem';
import type { Mark, SearchHit } from './types';

const ASK_AFTER_MS = 120;

/** Full-text search over every conversation. */
export class Search {
  text = $state('');
  hits = $state.raw<SearchHit[]>([]);
  answered = $state(false);
  /** The last query failed, so there are no results. */
  problem = $state.raw<Problem | null>(null);
  /** A hit was opened: the query is kept, but the list of conversations is shown. */
  private aside = $state(false);
  private timer: ReturnType<typeof setTimeout> | undefined;
  private asked = 0;

  /** The results are shown in place of the list. */
  readonly active: boolean = $derived(this.text.trim() !== '' && !this.aside);

  constructor(private readonly backend: Backend) {}

  write(text: string): void {
    this.text = text;
    this.aside = false;
    this.ask(ASK_AFTER_MS);
  }

  clear(): void {
    this.write('');
  }

  /** Shows the list again and keeps the query. */
  setAside(): void {
    this.aside = true;
  }

  /** Shows the results of the kept query again, and refreshes them. */
  takeUp(): void {
    if (!this.aside) return;
    this.aside = false;
    this.ask(0);
  }

  retry(): void {
    this.ask(0);
  }

  private ask(afterMs: number): void {
    this.answered = false;
    this.problem = null;
    clearTimeout(this.timer);
    const asked = ++this.asked;
    if (this.text.trim()) this.timer = setTimeout(() => void this.answer(asked), afterMs);
    else this.hits = [];
  }

  private async answer(asked: number): Promise<void> {
    let hits: SearchHit[] = [];
    let problem: Problem | null = null;
    try {
      hits = await this.backend.search(this.text.trim());
    } catch (cause) {
      problem = problemOf(cause, true);
    }
    if (asked !== this.asked) return;
    this.hits = hits;
    this.problem = problem;
    this.answered = problem === null;
  }
}

/** Splits a text at its marked ranges. */
export function partsOf(text: string, marks: readonly Mark[]): { text: string; match: boolean }[] {
  const chars = [...text];
  const parts: { text: string; match: boolean }[] = [];
  let at = 0;
  for (const { start, end } of [...marks, { start: chars.length, end: chars.length }]) {
    if (start > at) parts.push({ text: chars.slice(at, start).join(''), match: false });
    if (end > start) parts.push({ text: chars.slice(start, end).join(''), match: true });
    at = end;
  }
  return parts;
}

/** Strips Markdown from the text around the matches; the matches stay unchanged. */
export function withoutMarkup(parts: readonly { text: string; match: boolean }[]): { text: string; match: boolean }[] {
  const bare = parts.map((part) => (part.match ? part : { ...part, text: part.text.replace(/\*\*|__|`+/g, '').replace(/(\s)#+\s/g, '$1') }));
  if (bare[0] && !bare[0].match) bare[0] = { ...bare[0], text: bare[0].text.replace(/^#+\s/, '') };
  return bare.filter((part) => part.text !== '');
}
