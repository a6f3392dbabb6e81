import type { Backend } from '../backend/backend';
import type { SearchHit } from './types';

const ASK_AFTER_MS = 120;

/** Full-text search over every conversation. */
export class Search {
  text = $state('');
  hits = $state.raw<SearchHit[]>([]);
  answered = $state(false);
  private timer: ReturnType<typeof setTimeout> | undefined;
  private asked = 0;

  readonly active: boolean = $derived(this.text.trim() !== '');

  constructor(private readonly backend: Backend) {}

  write(text: string): void {
    this.text = text;
    this.answered = false;
    clearTimeout(this.timer);
    const asked = ++this.asked;
    if (this.active) this.timer = setTimeout(() => void this.ask(asked), ASK_AFTER_MS);
    else this.hits = [];
  }

  clear(): void {
    this.write('');
  }

  private async ask(asked: number): Promise<void> {
    const hits = await this.backend.search(this.text.trim()).catch(() => []);
    if (asked !== this.asked) return;
    this.hits = hits;
    this.answered = true;
  }
}

/** The snippet cut into parts, those that match the words of the query marked. */
export function markMatches(snippet: string, query: string): { text: string; match: boolean }[] {
  const words = query.split(/\s+/).filter(Boolean).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
  if (!words.length) return [{ text: snippet, match: false }];
  const parts = snippet.split(new RegExp(`(${words.join('|')})`, 'giu'));
  return parts.map((text, index) => ({ text, match: index % 2 === 1 })).filter((part) => part.text !== '');
}

/** Signs of Markdown mean nothing in a line of plain text. */
export function withoutMarkup(snippet: string): string {
  return snippet.replace(/\*\*|__|`+|^#+\s|\s#+(?=\s)/g, '');
}
