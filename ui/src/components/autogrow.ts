import type { Action } from 'svelte/action';

/** Makes a textarea as high as its text, up to its max-height. The value is a parameter so that changes from outside count too. */
export const autogrow: Action<HTMLTextAreaElement, string> = (node) => {
  const fit = () => {
    node.style.height = 'auto';
    node.style.height = `${node.scrollHeight}px`;
  };
  const observer = new ResizeObserver((entries) => {
    if (entries[0].contentRect.width !== width) fit();
    width = entries[0].contentRect.width;
  });
  let width = 0;
  observer.observe(node);
  fit();
  // The value is set in the same pass as this runs: the height is read after it.
  return { update: () => queueMicrotask(fit), destroy: () => observer.disconnect() };
};
