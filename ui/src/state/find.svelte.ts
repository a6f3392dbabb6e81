import type { Chat, Row } from './chat.svelte';
import { placesOf, soughtPhrase, soughtWords, type Sought } from '../words/fold';
import type { MessageId } from './types';

/** One match: its message and its index in it. */
export interface Found {
  readonly message: MessageId;
  readonly nth: number;
}

/** Find in the open conversation. It searches the whole shown branch, including rows that the virtual list has not rendered. */
export class Find {
  open = $state(false);
  text = $state('');
  sought = $state.raw<Sought>(soughtPhrase(''));
  current = $state.raw<Found | null>(null);
  /** A message opened from a search hit: highlighted as a whole until the reader steps on. */
  opened = $state.raw<MessageId | null>(null);
  private counts = new WeakMap<object, number>();

  readonly found: readonly Found[] = $derived.by(() => {
    const chat = this.open ? this.chat() : null;
    if (!chat || this.sought.parts.length === 0) return [];
    return chat.rows.flatMap((row) => Array.from({ length: this.countIn(row) }, (_, nth) => ({ message: row.message.id, nth })));
  });

  /** The number of the current match, from 1; 0 if there is none. */
  readonly position: number = $derived(this.found.findIndex((one) => isSame(one, this.current)) + 1);

  constructor(private readonly chat: () => Chat | null) {}

  /** Opens with the last query. */
  begin(): void {
    this.open = true;
    if (this.sought.parts.length) this.go(this.nearest());
  }

  write(text: string): void {
    this.text = text;
    this.seek(soughtPhrase(text));
    this.go(this.nearest());
  }

  /** Opens a search hit with its words highlighted. */
  openHit(query: string, message: MessageId): void {
    this.open = true;
    this.text = query;
    this.seek(soughtWords(query));
    this.opened = message;
    this.current = { message, nth: 0 };
  }

  step(by: 1 | -1): void {
    const { found, position } = this;
    if (found.length === 0) return;
    const from = position > 0 ? position - 1 : by > 0 ? -1 : found.length;
    this.go(found[(from + by + found.length) % found.length]);
  }

  close(): void {
    this.open = false;
    this.current = null;
    this.opened = null;
  }

  private seek(sought: Sought): void {
    this.sought = sought;
    this.counts = new WeakMap();
    this.opened = null;
  }

  private go(to: Found | undefined): void {
    this.opened = null;
    this.current = to ?? null;
    const chat = this.chat();
    if (chat && to) chat.reveal = { id: to.message, focus: false, nth: to.nth };
  }

  /** The current match if there still is one, else the first from the top of the view on, else the first of all. */
  private nearest(): Found | undefined {
    const { found } = this;
    const rows = this.chat()?.rows ?? [];
    const from = this.current?.message ?? this.chat()?.seen ?? null;
    const start = rows.findIndex((row) => row.message.id === from);
    const below = new Set(rows.slice(Math.max(start, 0)).map((row) => row.message.id));
    return found.find((one) => below.has(one.message)) ?? found[0];
  }

  private countIn({ message, live }: Row): number {
    if (live) return placesOf(live.text, this.sought).places.length;
    const known = this.counts.get(message);
    if (known !== undefined) return known;
    const count = placesOf(message.text, this.sought).places.length;
    this.counts.set(message, count);
    return count;
  }
}

function isSame(one: Found, other: Found | null): boolean {
  return one.message === other?.message && one.nth === other.nth;
}
