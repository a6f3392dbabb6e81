import type { Action } from 'svelte/action';

/** A text of so many characters is higher than any field may be: its column is narrow. */
const SURELY_FULL_CHARS = 20_000;

/** Makes a textarea as high as its text, up to its max-height. The value is a parameter so that changes from outside count too. */
export const autogrow: Action<HTMLTextAreaElement, string> = (node, value) => {
  // Where the page can do it, it does. For a text that fills the field anyway it would lay all of it out once more.
  if (typeof CSS !== 'undefined' && CSS.supports('field-sizing', 'content')) {
    const size = (text: string) => {
      const fills = text.length > SURELY_FULL_CHARS;
      node.style.setProperty('field-sizing', fills ? 'fixed' : 'content');
      node.style.height = fills ? '100vh' : '';
    };
    size(value);
    return { update: size };
  }
  let length = value.length;
  let width = 0;
  /** As high as it may be. */
  let full = false;

  const fit = () => {
    node.style.height = 'auto';
    grow();
  };
  // Reading the height of a long text lays it out: once while it fills the field, and then not again before it is shorter.
  const grow = () => {
    const height = node.scrollHeight;
    node.style.height = `${height}px`;
    full = height > node.clientHeight;
  };
  const change = (text: string) => {
    const grew = text.length >= length;
    length = text.length;
    if (full && (grew || length > SURELY_FULL_CHARS)) return;
    // The value is set in the same pass as this runs: the height is read after it.
    queueMicrotask(grew ? grow : fit);
  };
  const observer = new ResizeObserver((entries) => {
    if (entries[0].contentRect.width !== width) fit();
    width = entries[0].contentRect.width;
  });
  observer.observe(node);
  fit();
  return { update: change, destroy: () => observer.disconnect() };
};
