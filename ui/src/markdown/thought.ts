/** `generating` while streaming, `complete` at a natural end; any other state means that the reply was cut off. */
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
 * Splits the reply of a reasoning model into thought and answer. If the prompt opened the thought, the engine writes its opening tag.
 * Prose that only mentions a tag is an answer.
 */
export function splitThought(text: string, state: ReplyState = 'complete'): ThoughtAndAnswer {
  const open = OPEN.exec(text);
  if (!open) return withoutOpening(text);
  const [whole, tag, lineEnd] = open;
  const close = `</${tag}>`;
  const end = text.indexOf(close, whole.length);
  if (end !== -1) {
    const after = text.slice(end + close.length);
    // In a sentence about the tags, text follows the closing tag on the same line.
    if (!lineEnd && /^[ \t]*[^\s]/.test(after)) return answered(text);
    return parted(text.slice(whole.length, end), after);
  }
  const isThought = state === 'generating' || (state !== 'complete' && lineEnd !== undefined);
  if (!isThought) return answered(text);
  const thought = text.slice(whole.length).trimEnd();
  return { thought: thought || state === 'generating' ? thought : null, thoughtDone: false, answer: '' };
}

/** The text to copy: the answer, or the thought of a reply that has no answer. */
export function spoken(text: string, state: ReplyState = 'complete'): string {
  const { thought, answer } = splitThought(text, state);
  return answer || (thought ?? text);
}

/** Replies stored before the engine wrote the opening tag: their closing tag stands alone on a line outside of code. */
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
