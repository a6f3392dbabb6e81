import { tick } from 'svelte';

/** Resolves when the current content is drawn with its fonts. Uses no animation frame: a hidden window gets none. */
export async function drawn(): Promise<void> {
  await tick();
  if ('fonts' in document) await document.fonts.ready;
}
