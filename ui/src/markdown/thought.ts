/** `generating` while it is written, `complete` when it ended by itself, any other word when it was cut off. */
type ReplyState = string;

export interface ThoughtAndAnswer {
  /** What a reasoning model wrote before its answer; null when it wrote nothing. */
  thought: string | null;
  thoughtDone: boolean;
  answer: string;
}

// `<think>`, `<thinking>`, `<seed:think>`, `<thought>`, `<reasoning>`.
const TAG = '(?:\\w+:)?\\w*(?:think|thought|reason)\\w*';
const OPEN = new RegExp(`^\\s*<(${TAG})>([ \\t]*\\r?\\n)?`, 'i');
const CLOSE_ALONE = new RegExp(`^[ \\t]*</(${TAG})>[ \\t]*$`, 'im');

/**
 * Parts what a reasoning model thinks from what it says. The engine writes the opening tag of a thought that the prompt opened;
 * prose that only mentions a tag is an answer.
 */
export function splitThought(text: string, state: ReplyState = 'complete'): ThoughtAndAnswer {
  const open = OPEN.exec(text);
  if (!open) return withoutOpening(text);
  const [whole, tag, lineEnd] = open;
  const close = `</${tag}>`;
  const end = text.indexOf(close, whole.length);
  if (end !== -1) {
    const after = text.slice(end + close.length);
    // In a sentence about the tags, words go on behind the closing one.
    if (!lineEnd && /^[ \t]*[^\s]/.test(after)) return answered(text);
    return parted(text.slice(whole.length, end), after);
  }
  const isThought = state === 'generating' || (state !== 'complete' && lineEnd !== undefined);
  if (!isThought) return answered(text);
  const thought = text.slice(whole.length).trimEnd();
  return { thought: thought || state === 'generating' ? thought : null, thoughtDone: false, answer: '' };
}

/** What is worth copying: the answer, or the thought of a reply that came no further. */
export function spoken(text: string, state: ReplyState = 'complete'): string {
  const { thought, answer } = splitThought(text, state);
  return answer || (thought ?? text);
}

/** Of a reply from before the opening tag was written: its closing tag stands on a line of its own, outside of code. */
function withoutOpening(text: string): ThoughtAndAnswer {
  const close = CLOSE_ALONE.exec(text);
  if (!close) return answered(text);
  const before = text.slice(0, close.index);
  const isCode = (before.match(/^[ \t]*(```|~~~)/gm)?.length ?? 0) % 2 === 1;
  if (isCode || before.includes(`<${close[1]}>`)) return answered(text);
  return parted(before, text.slice(close.index + close[0].length));
}

function answered(text: string): ThoughtAndAnswer {
  return { thought: null, thoughtDone: true, answer: text };
}

function parted(thought: string, answer: string): ThoughtAndAnswer {
  return { thought: thought.trim() ? thought.trimEnd() : null, thoughtDone: true, answer: answer.replace(/^\s+/, '') };
}
