import type { Action } from 'svelte/action';

/** A text of this length exceeds the maximum height of every field, since the column is narrow. */
const SURELY_FULL_CHARS = 20_000;

/** Makes a textarea as high as its text, up to its max-height. The value is a parameter so that changes from outside count too. */
export const autogrow: Action<HTMLTextAreaElement, string> = (node, value) => {
  // `field-sizing` does it where the webview supports it, but not for long texts: it would lay out the whole text once more.
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
  /** The field has reached its maximum height. */
  let full = false;

  const fit = () => {
    node.style.height = 'auto';
    grow();
  };
  // Reading `scrollHeight` lays out the whole text. A full field is therefore not measured again before its text gets shorter.
  const grow = () => {
    const height = node.scrollHeight;
    node.style.height = `${height}px`;
    full = height > node.clientHeight;
  };
  const change = (text: string) => {
    const grew = text.length >= length;
    length = text.length;
    if (full && (grew || length > SURELY_FULL_CHARS)) return;
    // The value is set in the same pass as this runs, so measure after it.
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
