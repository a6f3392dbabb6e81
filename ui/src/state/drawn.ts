import { tick } from 'svelte';

/** Resolves when what stands in the page now is drawn, in its own fonts. An animation frame is no measure: a hidden window has none. */
export async function drawn(): Promise<void> {
  await tick();
  if ('fonts' in document) await document.fonts.ready;
}
