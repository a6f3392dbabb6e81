// Conversations to begin with, so that the page looks as it will look in use.
import type { Conversation, Message, MessageState, Sampling, TurnStats } from '../types';
import { CODE, PROSE, RTL, TABLE } from './replies';
import { SMOL } from './models';
import { encode } from './tokens';

export const SAMPLING: Sampling = {
  temperature: 0.7, top_k: null, top_p: 0.95, min_p: 0.05, repetition_penalty: 1, seed: null, max_tokens: null, stop: [],
};

export interface Seeded {
  conversation: Conversation;
  messages: Message[];
}

type Line = [role: 'user' | 'assistant', text: string, state?: MessageState];

const HOUR = 3_600_000;
const DAY = 24 * HOUR;

export function seedConversations(now: number): Seeded[] {
  return [
    bread(now - 0.2 * HOUR),
    linear('Counting words in a large file', now - 1.1 * HOUR, [
      ['user', 'How do I count the words of a very large text file in Python without reading it whole?'],
      ['assistant', CODE],
    ]),
    linear('What a prefix cache keeps', now - DAY, [
      ['user', 'How do the ways of keeping context differ? Make it a table.'],
      ['assistant', TABLE],
      ['user', 'And if I change the very first word?'],
      ['assistant', 'Then nothing before the change is left to keep, and the whole prompt is read again. Put what changes often at the end, and what never changes at the', 'stopped'],
    ]),
    linear('كيف أكتب درسا جيدا؟', now - 1.3 * DAY, [
      ['user', 'كيف أكتب درسا جيدا للمبتدئين؟'],
      ['assistant', RTL],
    ]),
    linear('Four days in Lisbon, walking', now - 4 * DAY, [
      ['user', 'Plan four days in Lisbon for someone who likes to walk and dislikes queues.'],
      ['assistant', '### Day one\nStart early in Alfama, before the trams fill. Walk down to the river by the Rua dos Remédios and along the water to Praça do Comércio.\n\n### Day two\nBelém on foot from Alcântara: an hour by the river, flat all the way.'],
    ]),
    linear('Letter to the landlord about the boiler', now - 12 * DAY, [
      ['user', 'Help me write a firm, polite letter about a boiler that has been broken for two weeks.'],
      ['assistant', 'Dear Ms Hale,\n\nThe boiler has been out of order since the third of the month…'],
    ]),
    linear('Averyverylongwordthatneverendsandhasnospacesinitatallsoitmustbecutsomewhere', now - 40 * DAY, [
      ['user', 'W'.repeat(600)],
      ['assistant', `Here it is again: ${'https://example.com/'}${'path/'.repeat(80)}`],
    ]),
  ];
}

/** A conversation of about this many tokens. */
export function longConversation(now: number, numTokens: number): Seeded {
  const lines: Line[] = [];
  const texts = [PROSE, CODE, TABLE];
  for (let tokens = 0, turn = 0; tokens < numTokens; turn += 1) {
    const question = `Question ${turn + 1}: tell me more about part ${turn + 1}, and be ${turn % 3 ? 'thorough' : 'plain'}.`;
    const answer = `Answer ${turn + 1}.\n\n${texts[turn % 3]}`;
    lines.push(['user', question], ['assistant', answer]);
    tokens += encode(question).length + encode(answer).length + 8;
  }
  return linear('A very long conversation', now - 0.5 * HOUR, lines);
}

function linear(title: string, at: number, lines: Line[]): Seeded {
  const id = crypto.randomUUID();
  const messages: Message[] = [];
  let before = 0;
  lines.forEach(([role, text, state], index) => {
    const tokens = encode(text).length + 4;
    const message = makeMessage(id, messages.at(-1)?.id ?? null, role, text, at + index * 20_000, state);
    if (role === 'assistant') Object.assign(message, { model: SMOL, stats: stats(before, messages.at(-1)?.num_tokens ?? 0, tokens, index) });
    messages.push(message);
    before += tokens;
  });
  const conversation = makeConversation(id, title, at + lines.length * 20_000, messages.at(-1)?.id ?? null);
  return { conversation: { ...conversation, model: SMOL }, messages };
}

function bread(at: number): Seeded {
  const seeded = linear('Why bread needs steam', at, [
    ['user', 'Why does bread need steam in the first minutes, and how do I get it in an ordinary oven?'],
    ['assistant', PROSE],
    ['user', 'My loaf still splits along the side. What am I doing wrong?'],
    ['assistant', 'Most likely the cut is too shallow, or the loaf goes in a little under-proved.\n\nPress it with a wet finger: if the dent springs back at once, **wait another half hour**. If it comes back slowly and not quite all the way, bake it. Then cut deeper than feels right, about 1 cm, at a flat angle, along the whole length.'],
  ]);
  const [, first] = seeded.messages;
  const other = makeMessage(seeded.conversation.id, first.parent, 'assistant', 'Because a dry crust sets before the loaf has finished rising. A lidded pot is the easy answer.', at + 5000);
  Object.assign(other, { model: SMOL, stats: stats(31, 0, 24, 1) });
  // The older answer stands first.
  seeded.messages.splice(1, 0, other);
  return seeded;
}

function stats(reused: number, question: number, completion: number, turn: number): TurnStats {
  const restored = turn > 2 ? Math.round(reused * 0.07) : 0;
  const resident = Math.max(reused - restored, 0);
  const computed = question + 5;
  return {
    prefill: { resident, restored, computed },
    prompt_tokens: resident + restored + computed,
    completion_tokens: completion,
    ttft_ms: 61 + ((turn * 37) % 60),
    tokens_per_s: 38 + ((turn * 13) % 9),
    restore_ms: restored / 40,
  };
}

export function makeMessage(
  conversation: string, parent: string | null, role: 'user' | 'assistant', text: string, at: number, state: MessageState = 'complete',
): Message {
  return {
    id: crypto.randomUUID(), conversation, parent, role, text, num_tokens: encode(text).length + 4, state, model: null, stats: null, created_at: at,
    edited_from: null,
    kind: 'said',
  };
}

export function makeConversation(id: string, title: string, at: number, leaf: string | null): Conversation {
  return { id, title, system_prompt: '', model: null, sampling: { ...SAMPLING, stop: [] }, when_full: 'ask', created_at: at, updated_at: at, active_leaf: leaf };
}
