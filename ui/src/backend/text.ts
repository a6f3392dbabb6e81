// Text that is safe to send to the shell. A clipboard may hold lone surrogates (halves of characters), which JSON cannot carry,
// and NUL, at which C strings end.
const ODD = /[\uD800-\uDFFF]|\0/gu;

/** The text with U+FFFD in place of each lone surrogate and NUL. */
export function wholeText(text: string): string {
  return text.replace(ODD, '\uFFFD');
}

/** Replaces them in every string of a nested value. */
export function wholeTexts<T>(value: T): T {
  if (typeof value === 'string') return wholeText(value) as T;
  if (Array.isArray(value)) return value.map((one) => wholeTexts(one)) as T;
  // Instances of classes (a channel) are passed through.
  if (value === null || typeof value !== 'object' || Object.getPrototypeOf(value) !== Object.prototype) return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, wholeTexts(one)])) as T;
}
