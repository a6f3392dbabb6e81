// Parses typed numbers. A number out of range is refused with a reason, never clamped.

export interface NumberRange {
  min: number;
  max: number;
  whole?: boolean;
  /** Numbers that mean the same as an empty field. */
  none?: readonly number[];
}

/** The number; null for an empty field or an equivalent; a string with the reason if it is refused. */
export function readNumber(text: string, { min, max, whole = false, none = [] }: NumberRange): number | null | string {
  const typed = text.trim().replace('\u2212', '-').replace(',', '.');
  if (typed === '') return null;
  const number = Number(typed);
  if (!Number.isFinite(number)) return 'This is not a number.';
  if (none.includes(number)) return null;
  if (number < min || number > max) return `Not used: it has to be from ${plain(min)} to ${plain(max)}.`;
  if (whole && !Number.isInteger(number)) return 'Not used: it has to be a whole number.';
  return number;
}

/** The number with spaces between thousands. */
function plain(number: number): string {
  const [whole, part] = String(number).split('.');
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, '\u2009');
  return part ? `${grouped}.${part}` : grouped;
}
