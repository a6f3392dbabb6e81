import type { Chat } from '../state/chat.svelte';
import { RowHeights } from '../state/rows';

/** Where the reader was in a conversation, kept while it is not drawn. */
export interface Place {
  heights: RowHeights;
  top: number;
  atEnd: boolean;
}

const places = new WeakMap<Chat, Place>();

export function placeIn(chat: Chat): Place {
  const known = places.get(chat);
  if (known) return known;
  const place = { heights: new RowHeights(), top: 0, atEnd: true };
  places.set(chat, place);
  return place;
}
