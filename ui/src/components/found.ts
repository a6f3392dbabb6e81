import type { Action } from 'svelte/action';
import type { Found } from '../state/find.svelte';
import { placesOf, type Sought } from '../words/fold';

/** The highlighted matches. */
export interface Marks {
  sought: Sought;
  current: Found | null;
}

/** Highlights all matches in the rendered messages and keeps the highlights current as messages change; null highlights nothing. */
export const found: Action<HTMLElement, Marks | null> = (node, marks) => {
  let wanted = marks;
  let frame = 0;
  const later = () => {
    if (!frame) frame = requestAnimationFrame(draw);
  };
  const observer = new MutationObserver(later);
  function draw() {
    frame = 0;
    mark(node, wanted);
  }
  function watch() {
    observer.disconnect();
    if (wanted) observer.observe(node, { childList: true, subtree: true, characterData: true });
    later();
  }
  watch();
  return {
    update(next) {
      wanted = next;
      watch();
    },
    destroy() {
      cancelAnimationFrame(frame);
      observer.disconnect();
      mark(node, null);
    },
  };
};

function mark(node: HTMLElement, marks: Marks | null): void {
  const everywhere: Range[] = [];
  const here: Range[] = [];
  for (const article of node.querySelectorAll<HTMLElement>('[data-id]')) {
    const ranges = marks ? rangesIn(article, marks.sought) : [];
    const current = marks?.current;
    const isHere = current?.message === article.dataset.id;
    if (current && isHere && ranges.length) here.push(rangeOf(ranges, current));
    everywhere.push(...ranges);
    // Outline the whole message if the webview has no highlight API, or if the match is in text that is not rendered.
    article.toggleAttribute('data-found', isHere && (ranges.length === 0 || !highlights()));
  }
  highlights()?.set('found', new Highlight(...everywhere));
  highlights()?.set('found-here', new Highlight(...here));
}

function highlights(): HighlightRegistry | undefined {
  return typeof CSS === 'undefined' || typeof Highlight === 'undefined' ? undefined : CSS.highlights;
}

/** The range of a match in a rendered message. The rendered text may have fewer matches than the source that was searched. */
export function rangeIn(article: HTMLElement, sought: Sought, found: Found): Range | null {
  const ranges = rangesIn(article, sought);
  return ranges.length ? rangeOf(ranges, found) : null;
}

function rangeOf(ranges: Range[], { nth }: Found): Range {
  return ranges[Math.min(nth, ranges.length - 1)];
}

function rangesIn(article: HTMLElement, sought: Sought): Range[] {
  return [...article.querySelectorAll<HTMLElement>('[data-words]')].flatMap((words) => rangesOf(words, sought));
}

function rangesOf(element: HTMLElement, sought: Sought): Range[] {
  const nodes: Text[] = [];
  const starts: number[] = [];
  let text = '';
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    // Text of buttons does not belong to the message.
    if (node.parentElement?.closest('button')) continue;
    nodes.push(node as Text);
    starts.push(text.length);
    text += (node as Text).data;
  }
  const place = (at: number, isEnd: boolean): [Text, number] => {
    let index = starts.length - 1;
    while (index > 0 && (isEnd ? starts[index] >= at : starts[index] > at)) index -= 1;
    return [nodes[index], at - starts[index]];
  };
  return placesOf(text, sought).places.map(([start, end]) => {
    const range = document.createRange();
    range.setStart(...place(start, false));
    range.setEnd(...place(end, true));
    return range;
  });
}
