import type { Action } from 'svelte/action';

/** For what floats above the page beside the button that opened it: takes the focus and gives it back, and closes on Escape, on a click elsewhere and when the focus leaves both. */
export const dismiss: Action<HTMLElement, () => void> = (node, close) => {
  const home = node.parentElement ?? node;
  const opener = document.activeElement;
  let run = close;
  const onKey = (event: KeyboardEvent) => {
    if (event.key !== 'Escape') return;
    event.preventDefault();
    event.stopPropagation();
    run();
  };
  const onPointer = (event: PointerEvent) => {
    if (event.target instanceof Node && !home.contains(event.target)) run();
  };
  const onFocus = (event: FocusEvent) => {
    if (event.relatedTarget instanceof Node && !home.contains(event.relatedTarget)) run();
  };
  home.addEventListener('keydown', onKey);
  home.addEventListener('focusout', onFocus);
  document.addEventListener('pointerdown', onPointer, true);
  (node.querySelector<HTMLElement>('button:not(:disabled), input') ?? node).focus();
  return {
    update: (next) => (run = next),
    destroy() {
      home.removeEventListener('keydown', onKey);
      home.removeEventListener('focusout', onFocus);
      document.removeEventListener('pointerdown', onPointer, true);
      const lost = document.activeElement === document.body || node.contains(document.activeElement);
      if (lost && opener instanceof HTMLElement) opener.focus();
    },
  };
};
