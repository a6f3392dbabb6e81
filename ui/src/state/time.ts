// Formats points in time in the reader's locale.

/** The ISO 8601 timestamp; null if `at` is outside the range of dates. */
export function isoTime(at: number): string | null {
  return at > 0 && Math.abs(at) <= 8.64e15 ? new Date(at).toISOString() : null;
}

/** The time of day, with the date if it is not today. */
export function shortTime(at: number, now: number, locale?: string): string {
  const [then, today] = [new Date(at), new Date(now)];
  const time: Intl.DateTimeFormatOptions = { hour: '2-digit', minute: '2-digit' };
  if (then.toDateString() === today.toDateString()) return then.toLocaleTimeString(locale, time);
  const date: Intl.DateTimeFormatOptions = { day: 'numeric', month: 'short', ...(then.getFullYear() === today.getFullYear() ? {} : { year: 'numeric' }) };
  return then.toLocaleString(locale, { ...date, ...time });
}

export function fullTime(at: number, locale?: string): string {
  return new Date(at).toLocaleString(locale, { dateStyle: 'full', timeStyle: 'short' });
}
