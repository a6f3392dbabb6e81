import { FrameBuffer } from './frames';
import type { Message, MessageId, Shorten, TurnEvent } from './types';

const WORTH_TELLING_TOKENS = 64;

let asked = 0;

export type TurnKind = 'send' | 'edit' | 'regenerate' | 'continue' | 'shorten';

export type PrefillProgress = Extract<TurnEvent, { event: 'prefill' }>;

/** One turn under way: what is shown before and while the shell answers. */
export class Stream {
  /** The engine serves turns in the order of this number. */
  readonly order = ++asked;
  /** Messages shown in place of those the shell has not confirmed yet. */
  user = $state.raw<Message | null>(null);
  reply = $state.raw<Message | null>(null);
  started = $state(false);
  stopping = $state(false);
  text = $state('');
  progress = $state.raw<PrefillProgress | null>(null);
  /** A shorter branch is being made: what takes the place of how many turns. */
  shortening = $state.raw<{ how: Shorten; turns: number } | null>(null);
  /** A prompt that is nearly all there is read in a blink: no numbers flash by. */
  readonly reading: boolean = $derived(this.progress !== null && this.progress.total - this.progress.resident - this.progress.restored > WORTH_TELLING_TOKENS);
  private readonly buffer = new FrameBuffer((text) => (this.text += text));

  constructor(
    readonly kind: TurnKind,
    /** The branch ends here until the shell has confirmed. */
    public base: MessageId | null,
    /** Text the reply had before (continue). */
    public before: string,
  ) {
    this.text = before;
  }

  /** Whether one of the `others` is served before this one. */
  waitsFor(others: readonly Stream[]): boolean {
    return !this.started && others.some((other) => other !== this && (other.started || other.order < this.order));
  }

  /** What streams from here on is the reply in the shorter branch, which ends at `base`. */
  beginAgain(base: MessageId, before: string): void {
    this.flush();
    this.base = base;
    this.before = before;
    this.text = before;
    this.progress = null;
    this.shortening = null;
  }

  push(text: string): void {
    this.progress = null;
    this.buffer.push(text);
  }

  flush(): void {
    this.buffer.flush();
  }
}
