/**
 * Keeps key events of an input method (IME) from every handler in the window: Enter accepts a candidate, Escape discards it.
 * WebKit marks such events only by keyCode 229. Must be the first listener of the capture phase.
 */
export function withholdComposing(event: KeyboardEvent): void {
  if (event.isComposing || event.keyCode === 229) event.stopImmediatePropagation();
}
