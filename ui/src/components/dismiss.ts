import type { Action } from 'svelte/action';

/** Closes what floats above the page on Escape, on a click elsewhere and when the focus leaves it. */
export const dismiss: Action<HTMLElement, () => void> = (node, close) => {
  const opener = document.activeElement;
  let run = close;
  const onKey = (event: KeyboardEvent) => {
    if (event.key !== 'Escape') return;
    event.stopPropagation();
    run();
    if (opener instanceof HTMLElement) opener.focus();
  };
  const onPointer = (event: PointerEvent) => {
    if (event.target instanceof Node && !node.parentElement?.contains(event.target)) run();
  };
  const onFocus = (event: FocusEvent) => {
    if (event.relatedTarget instanceof Node && !node.parentElement?.contains(event.relatedTarget)) run();
  };
  node.addEventListener('keydown', onKey);
  node.addEventListener('focusout', onFocus);
  document.addEventListener('pointerdown', onPointer, true);
  return {
    update: (next) => (run = next),
    destroy() {
      node.removeEventListener('keydown', onKey);
      node.removeEventListener('focusout', onFocus);
      document.removeEventListener('pointerdown', onPointer, true);
    },
  };
};
