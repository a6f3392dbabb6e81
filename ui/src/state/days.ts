import type { Conversation } from './types';

export interface DayGroup {
  name: string;
  conversations: Conversation[];
}

/** Conversations by recency under the names a reader thinks in. */
export function groupByDay(conversations: readonly Conversation[], now: number): DayGroup[] {
  const groups: DayGroup[] = [];
  const sorted = [...conversations].sort((a, b) => b.updated_at - a.updated_at);
  for (const conversation of sorted) {
    const name = dayName(conversation.updated_at, now);
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
