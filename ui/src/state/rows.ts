// The arithmetic of a list that draws only what is in view: heights, offsets, and which rows to draw.

export class RowHeights {
  private readonly measured = new Map<string, number>();

  get(key: string, estimate: number): number {
    return this.measured.get(key) ?? estimate;
  }

  /** Notes a height; returns how much it differs from what was assumed. */
  set(key: string, height: number, estimate: number): number {
    const before = this.get(key, estimate);
    this.measured.set(key, height);
    return height - before;
  }

  /** Where each row starts, and after them where the last one ends. */
  offsets(keys: readonly string[], estimate: (index: number) => number): Float64Array {
    const offsets = new Float64Array(keys.length + 1);
    for (let index = 0; index < keys.length; index += 1) offsets[index + 1] = offsets[index] + this.get(keys[index], estimate(index));
    return offsets;
  }
}

/** The rows that touch [top, bottom): first included, last not. */
export function rowsIn(offsets: Float64Array, top: number, bottom: number): [first: number, last: number] {
  const rows = offsets.length - 1;
  const first = Math.min(firstEndingAfter(offsets, top), Math.max(rows - 1, 0));
  let last = first;
  while (last < rows && offsets[last] < bottom) last += 1;
  return [first, last];
}

function firstEndingAfter(offsets: Float64Array, position: number): number {
  let low = 0;
  let high = offsets.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (offsets[middle + 1] > position) high = middle;
    else low = middle + 1;
  }
  return low;
}

// A pasted document would push the conversation off the page: what is longer is folded to the first lines.
const FOLDS_AFTER = { chars: 2400, lines: 24 };
const FOLDED_HEIGHT = 268 + 32;

/** Whether a message of the person is folded until it is asked for. */
export function isFolded(text: string): boolean {
  return text.length > FOLDS_AFTER.chars || text.split('\n', FOLDS_AFTER.lines + 1).length > FOLDS_AFTER.lines;
}

/** A first guess at the height of a message from its text alone. */
export function estimateHeight(text: string, isUser: boolean): number {
  if (isUser && isFolded(text)) return FOLDED_HEIGHT;
  let lines = 0;
  let at = 0;
  while (at <= text.length) {
    const end = text.indexOf('\n', at);
    const stop = end === -1 ? text.length : end;
    lines += Math.max(1, Math.ceil((stop - at) / 92));
    at = stop + 1;
  }
  return lines * 24 + (isUser ? 92 : 84);
}
