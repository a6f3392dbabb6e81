/**
 * Time between two drawings of a stream. A frame of every sixteen milliseconds would take a core where the window is drawn
 * without a graphics card, and the model wants it; nobody reads faster than this.
 */
const SPACING_MS = 50;

/** Gathers what arrives between two drawings, so that the page is drawn as often whatever the token rate. */
export class FrameBuffer {
  private pending = '';
  private cancel: (() => void) | null = null;
  private drawn = -SPACING_MS;

  constructor(private readonly apply: (text: string) => void) {}

  push(text: string): void {
    this.pending += text;
    this.cancel ??= later(this.drawn + SPACING_MS - performance.now(), () => this.flush());
  }

  flush(): void {
    this.cancel?.();
    this.cancel = null;
    const text = this.pending;
    this.pending = '';
    if (!text) return;
    this.drawn = performance.now();
    this.apply(text);
  }
}

/** Runs in the first frame after so many milliseconds. A hidden window gets no frames; text must arrive all the same. */
function later(ms: number, run: () => void): () => void {
  if (document.hidden) {
    const timer = setTimeout(run, 250);
    return () => clearTimeout(timer);
  }
  let frame = 0;
  const timer = setTimeout(() => (frame = requestAnimationFrame(run)), Math.max(0, ms));
  return () => {
    clearTimeout(timer);
    cancelAnimationFrame(frame);
  };
}
