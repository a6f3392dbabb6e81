import type { Conversation } from './types';

export interface DayGroup {
  name: string;
  conversations: Conversation[];
}

/**
 * Groups conversations, last used first, by the day of their last use. Their order is reliable, their timestamps may not be: each
 * counts as no older than the one after it, and a timestamp in the future is replaced by those of its neighbours.
 */
export function groupByDay(conversations: readonly Conversation[], now: number): DayGroup[] {
  const groups: DayGroup[] = [];
  const times = conversations.map((one) => (one.updated_at <= now + 86_400_000 ? one.updated_at : 0));
  for (let index = times.length - 2; index >= 0; index -= 1) times[index] = Math.max(times[index], times[index + 1]);
  for (const [index, conversation] of conversations.entries()) {
    const name = dayName(times[index] || now, now);
    const last = groups.at(-1);
    if (last?.name === name) last.conversations.push(conversation);
    else groups.push({ name, conversations: [conversation] });
  }
  return groups;
}

function dayName(at: number, now: number): string {
  const days = Math.round((startOfDay(now) - startOfDay(at)) / 86_400_000);
  if (days <= 0) return 'Today';
  if (days === 1) return 'Yesterday';
  if (days < 7) return 'This week';
  if (days < 31) return 'This month';
  const date = new Date(at);
  const month = date.toLocaleString('en', { month: 'long' });
  return date.getFullYear() === new Date(now).getFullYear() ? month : `${month} ${date.getFullYear()}`;
}

function startOfDay(at: number): number {
  const date = new Date(at);
  date.setHours(0, 0, 0, 0);
  return date.getTime();
}
