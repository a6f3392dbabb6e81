/**
 * Keeps keys that belong to an input method from every handler in the window: its Enter chooses a word, its Escape gives one
 * up. WebKit says so only by the number 229. To be called before all others, while the event comes down.
 */
export function withholdComposing(event: KeyboardEvent): void {
  if (event.isComposing || event.keyCode === 229) event.stopImmediatePropagation();
}
