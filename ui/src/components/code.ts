// The view state of code blocks: long lines wrapped or not, long blocks folded or not. It is kept for the lifetime of the window,
// keyed by the reply and the position of the block in it.

/** Blocks with more lines are folded. */
const LONGEST_LINES = 24;

interface View {
  wrapped: boolean;
  whole: boolean;
}

const views = new Map<string, View>();

/** Event: a click changed the height of a block. The list stops following its end, so that the block stays in place. */
export const STAYS = 'reprise-stays';

function blocksOf(root: HTMLElement): [string, HTMLElement][] {
  const blocks = [...root.querySelectorAll<HTMLElement>('.code')];
  // Blocks in the thought are numbered separately: a thought may appear or go without renumbering the answer.
  const groups = [blocks.filter((block) => block.closest('.thought')), blocks.filter((block) => !block.closest('.thought'))];
  return groups.flatMap((group, kind) => group.map((block, at): [string, HTMLElement] => [`${kind} ${at}`, block]));
}

function viewOf(reply: string, place: string): View {
  const key = `${reply} ${place}`;
  const view = views.get(key) ?? { wrapped: false, whole: false };
  views.set(key, view);
  return view;
}

/**
 * Applies the kept view state to the code blocks of a reply. A block that was seen while it streamed stays unfolded, so that the
 * layout does not shift when the reply ends. `whole`: a match in the reply requires all blocks unfolded.
 */
export function arrangeCode(root: HTMLElement, reply: string, live: boolean, whole: boolean): void {
  for (const [place, block] of blocksOf(root)) {
    const view = viewOf(reply, place);
    if (live || whole) view.whole = true;
    arrange(block, view, live);
  }
}

function arrange(block: HTMLElement, view: View, live: boolean): void {
  const lines = linesOf(block);
  const long = !live && lines > LONGEST_LINES;
  block.classList.toggle('wrapped', view.wrapped);
  block.classList.toggle('folded', long && !view.whole);
  // A block that was folded once keeps its button: removing the button would shift the layout, too.
  if (long && !view.whole) block.classList.add('foldable');
  if (live) block.classList.remove('foldable');
  block.querySelector('[data-wrap]')?.setAttribute('aria-pressed', String(view.wrapped));
  const button = block.querySelector<HTMLElement>('[data-unfold]');
  if (!button) return;
  button.setAttribute('aria-expanded', String(view.whole));
  button.textContent = view.whole ? 'Show less' : `Show all ${lines} lines`;
}

function linesOf(block: HTMLElement): number {
  const code = block.querySelector('code')?.textContent ?? '';
  return code.replace(/\n$/, '').split('\n').length;
}

/** Runs the action of a button in a code block; false if `target` is no such button. */
export function actOnCode(root: HTMLElement, reply: string, target: HTMLElement): boolean {
  const button = target.closest('[data-wrap], [data-unfold]');
  const found = button && blocksOf(root).find(([, block]) => block.contains(button));
  if (!found) return false;
  const [place, block] = found;
  const view = viewOf(reply, place);
  if (button.hasAttribute('data-wrap')) view.wrapped = !view.wrapped;
  else view.whole = !view.whole;
  block.dispatchEvent(new CustomEvent(STAYS, { bubbles: true }));
  arrange(block, view, root.classList.contains('live'));
  if (!view.whole) block.scrollIntoView?.({ block: 'nearest' });
  return true;
}
