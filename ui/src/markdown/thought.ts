export interface ThoughtAndAnswer {
  /** What a reasoning model wrote before its answer; null when it wrote nothing. */
  thought: string | null;
  thoughtDone: boolean;
  answer: string;
}

const OPEN = /^\s*<think>\n?/;
const CLOSE = '</think>';

/** Parts what a reasoning model thinks from what it says. */
export function splitThought(text: string): ThoughtAndAnswer {
  const open = OPEN.exec(text);
  if (!open) return { thought: null, thoughtDone: true, answer: text };
  const start = open[0].length;
  const end = text.indexOf(CLOSE, start);
  const thought = text.slice(start, end === -1 ? undefined : end).trimEnd();
  const answer = end === -1 ? '' : text.slice(end + CLOSE.length).replace(/^\s+/, '');
  return { thought: thought.trim() ? thought : end === -1 ? '' : null, thoughtDone: end !== -1, answer };
}
