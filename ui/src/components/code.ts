// How blocks of code are shown: with long lines wrapped or not, long ones folded or whole. It is remembered as long as the
// window lives, by the reply and by the block's place in it.

/** Longer code is folded to some of its lines. */
const LONGEST_LINES = 24;

interface View {
  wrapped: boolean;
  whole: boolean;
}

const views = new Map<string, View>();

/** What a click in a reply did to a block lets go of the page's end: the reader stays where the block is. */
export const STAYS = 'reprise-stays';

function blocksOf(root: HTMLElement): [string, HTMLElement][] {
  const blocks = [...root.querySelectorAll<HTMLElement>('.code')];
  // A thought comes and goes; it does not count the blocks of the answer.
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
 * Shows the blocks of a reply as they were left. Code that was seen being written stays whole, so that nothing jumps when the
 * reply is finished; `whole`: something in it was looked for.
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
  // Offered where it was folded once: a line less would be a jump, too.
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

/** Does what the button `target` in a block of code asks for; false when it is none. */
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
