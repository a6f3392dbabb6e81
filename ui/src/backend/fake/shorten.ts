import type { OnTurnEvent } from '../backend';
import type { ContextChoice, Message, Shorten, TooLong } from '../types';
import { encodeMessage, pieces, promptOf } from './tokens';

/** The first message of each turn, by index into the branch. */
export function turnStarts(branch: readonly Message[]): number[] {
  return branch.flatMap((message, index) => (index === 0 || message.role === 'user' ? [index] : []));
}

/** Which part of an overflowing branch is too long by itself, if any. */
export function tooLong(systemPrompt: string, branch: readonly Message[], contextTokens: number): TooLong | null {
  const isTooLong = (text: string) => promptOf(systemPrompt, [{ role: 'user', text }]).length + 1 > contextTokens;
  if (isTooLong('')) return 'system_prompt';
  const last = branch.findLast((message) => message.role === 'user');
  return last && isTooLong(last.text) ? 'message' : null;
}

/** Whether at least the newest of the turns to leave fits into the context together with its summary. */
function summarises(branch: readonly Message[], contextTokens: number): boolean {
  const leave = turnsToLeave(branch, 'compact', contextTokens);
  const starts = turnStarts(branch);
  return promptOf('', branch.slice(starts[leave - 1], starts[leave])).length + contextTokens / 8 <= contextTokens;
}

/** The choices to offer. `full` is set if the branch overflows: choices that cannot help are left out then. */
export function choicesOf(branch: readonly Message[], tooLong: TooLong | null = null, full: { contextTokens: number } | null = null): ContextChoice[] {
  if (tooLong === 'system_prompt') return ['edit_system_prompt', 'stop'];
  if (tooLong === 'message') return ['edit_earlier', 'new_conversation', 'stop'];
  if (full && turnStarts(branch).length > 1 && !summarises(branch, full.contextTokens)) return ['drop_oldest', 'stop'];
  return turnStarts(branch).length > 1 ? ['compact', 'drop_oldest', 'stop'] : ['edit_earlier', 'new_conversation', 'stop'];
}

/** Whether the model is to go on after this message. */
export function wantsMore(leaf: Message): boolean {
  return (leaf.role === 'user' && leaf.kind === 'said') || leaf.state === 'context_full';
}

/** How many of the oldest turns go: at least one, and more until the rest fills only a share of the context. */
export function turnsToLeave(branch: readonly Message[], how: Shorten, contextTokens: number): number {
  const starts = turnStarts(branch);
  const most = contextTokens / (how === 'compact' ? 4 : 2);
  // A message without a reply stays; a finished turn may go into the summary.
  const lastStays = how === 'drop_oldest' || branch.length === 0 || wantsMore(branch[branch.length - 1]);
  const all = lastStays ? starts.length - 1 : starts.length;
  if (all < 1) throw { code: 'invalid_argument', message: 'this branch has a single turn' };
  const tokens = (from: number) => branch.slice(from).reduce((sum, message) => sum + encodeMessage(message.role, message.text).length, 0);
  let leave = 1;
  while (leave < all && tokens(starts[leave] ?? branch.length) > most) leave += 1;
  return leave;
}

/** Writes a summary of the turns piece by piece; null when it was stopped. */
export async function summarise(turns: readonly Message[], rate: number, stopped: () => boolean, onEvent: OnTurnEvent): Promise<string | null> {
  const asked = turns.filter((message) => message.role === 'user').map((message) => message.text.split(/\s+/).slice(0, 6).join(' '));
  let text = '';
  for (const piece of pieces(`You asked about: ${asked.join('; ')}.`)) {
    await new Promise((resolve) => setTimeout(resolve, 1000 / rate));
    if (stopped()) return null;
    text += piece;
    onEvent({ event: 'token', text: piece });
  }
  return `Summary of the earlier conversation:\n\n${text}`;
}
