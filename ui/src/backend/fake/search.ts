import { placesOf, soughtWords, type Sought } from '../../words/fold';
import type { Conversation, Mark, Message, SearchHit } from '../types';
import { titleFrom } from './title';

const LIMIT = 50;
const LENGTH = 110;
const BEFORE = 28;

/** Searches by the rules of the store: every word must match, titles come first, and a title made from a found message is left out. */
export function searchAll(query: string, all: Iterable<{ conversation: Conversation; messages: Message[] }>): SearchHit[] {
  const sought = soughtWords(query);
  const titles: SearchHit[] = [];
  const found: SearchHit[] = [];
  for (const { conversation, messages } of all) {
    const { id, title } = conversation;
    const first = messages.find((message) => message.role === 'user')?.text ?? '';
    const isMade = title !== '' && (titleFrom(first) === title || first.trimStart().startsWith(title.replace(/…$/, '')));
    const inTitle = isMade ? null : snippetOf(title, sought);
    if (inTitle) titles.push({ kind: 'title', conversation: id, message: null, title, ...inTitle });
    for (const message of messages) {
      // A verbatim copy in a shorter branch is skipped: its original is a hit already.
      if (messages.some((original) => original.id === message.edited_from && original.text === message.text)) continue;
      const inText = snippetOf(message.text, sought);
      if (inText) found.push({ kind: 'message', conversation: id, message: message.id, title, ...inText });
    }
  }
  return [...titles.slice(0, LIMIT / 2), ...found].slice(0, LIMIT);
}

function snippetOf(text: string, sought: Sought): { snippet: string; marks: Mark[] } | null {
  const { places, all } = placesOf(text, sought);
  if (!all) return null;
  const from = Math.max(0, places[0][0] - BEFORE);
  const to = Math.max(from + LENGTH, places[0][1]);
  let snippet = from > 0 ? '…' : '';
  const marks: Mark[] = [];
  for (let at = from; at < Math.min(to, text.length); ) {
    const place = places.find(([start, end]) => start <= at && at < end);
    const next = place?.[1] ?? Math.min(to, places.find(([start]) => start > at)?.[0] ?? text.length);
    const stretch = text.slice(at, next).replace(/\s+/gu, ' ');
    const start = [...snippet].length;
    if (place) marks.push({ start, end: start + [...stretch].length });
    snippet += stretch;
    at = next;
  }
  return { snippet: to < text.length ? `${snippet}…` : snippet, marks };
}
