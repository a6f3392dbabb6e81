// Some texts cost the parser its stack or quadratic time, and no reader wants them set as Markdown either.

// Levels of quotes and lists, columns of indentation before a list, signs of emphasis in one paragraph.
const DEEPEST = 24;
const WIDEST = 96;
const MOST_SIGNS = 1500;

const NESTED = new RegExp(`^(?:[ \\t]*(?:>|[-*+](?=[ \\t])|\\d{1,9}[.)](?=[ \\t]))){${DEEPEST},}`);
const INDENTED = new RegExp(`^[ \\t]{${WIDEST},}(?:>|[-*+][ \\t]|\\d{1,9}[.)])`);
const FENCE = /^[ \t]*(`{3,}|~{3,})/;

/** Whether the text is better shown plain. What stands between fences is never parsed and does not count. */
export function isTangled(text: string): boolean {
  let fence = '';
  let signs = 0;
  for (const line of text.split('\n')) {
    const mark = FENCE.exec(line)?.[1];
    if (fence) {
      if (mark?.startsWith(fence)) fence = '';
      continue;
    }
    if (mark) {
      fence = mark;
      continue;
    }
    if (NESTED.test(line) || INDENTED.test(line)) return true;
    signs = line.trim() === '' ? 0 : signs + countSigns(line);
    if (signs > MOST_SIGNS) return true;
  }
  return false;
}

function countSigns(line: string): number {
  let signs = 0;
  for (let at = 0; at < line.length; at += 1) {
    const char = line.charCodeAt(at);
    // A run of one sign is one delimiter.
    if ((char === 42 || char === 95 || char === 126) && line.charCodeAt(at - 1) !== char) signs += 1;
  }
  return signs;
}
