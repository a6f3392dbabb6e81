// Text that can cross to the shell. A clipboard may hold half a character (a lone surrogate), which JSON cannot carry, and
// NUL, at which others end a text.
const ODD = /[\uD800-\uDFFF]|\0/gu;

/** The text with a replacement character for each thing in it that is none. */
export function wholeText(text: string): string {
  return text.replace(ODD, '\uFFFD');
}

/** The same for every text in what is sent. */
export function wholeTexts<T>(value: T): T {
  if (typeof value === 'string') return wholeText(value) as T;
  if (Array.isArray(value)) return value.map((one) => wholeTexts(one)) as T;
  // What is of a class (a channel) is not data.
  if (value === null || typeof value !== 'object' || Object.getPrototypeOf(value) !== Object.prototype) return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, wholeTexts(one)])) as T;
}
