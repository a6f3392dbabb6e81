/** Gathers what arrives between two frames, so that the page is drawn once per frame whatever the token rate. */
export class FrameBuffer {
  private pending = '';
  private cancel: (() => void) | null = null;

  constructor(private readonly apply: (text: string) => void) {}

  push(text: string): void {
    this.pending += text;
    this.cancel ??= nextFrame(() => this.flush());
  }

  flush(): void {
    this.cancel?.();
    this.cancel = null;
    const text = this.pending;
    this.pending = '';
    if (text) this.apply(text);
  }
}

// A hidden window gets no frames; text must arrive all the same.
function nextFrame(run: () => void): () => void {
  if (document.hidden) {
    const timer = setTimeout(run, 250);
    return () => clearTimeout(timer);
  }
  const frame = requestAnimationFrame(run);
  return () => cancelAnimationFrame(frame);
}
