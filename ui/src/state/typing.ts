import type { Backend } from '../backend/backend';
import type { ConversationId, MessageId } from './types';

const QUIET_MS = 300;
/** A long text is asked for less often: all of it goes to the engine each time. */
const LONG_CHARS = 32_000;
const LONG_QUIET_MS = 1000;
/** In a script without spaces, or in data, a run of characters stands up to its end but for a few. */
const RUN_CHARS = 24;
const RUN_STEP = 8;

/** Where something is being typed: under the branch that is shown, or in place of a message. */
interface Place {
  conversation: ConversationId;
  message: MessageId | null;
}

/** Has what is being typed read ahead once the typing rests. There is one draft at a time, and none of it is kept. */
export class Typing {
  private timer: ReturnType<typeof setTimeout> | undefined;
  private place: Place | null = null;
  /** The message in whose editor something was typed last; null for the composer. */
  private typedIn: MessageId | null = null;
  /** What stands for sure of the text that was asked for last: everything before its last word, or nearly all of a long run. */
  private asked = '';

  constructor(private readonly backend: Backend) {}

  write(conversation: ConversationId, message: MessageId | null, text: string): void {
    clearTimeout(this.timer);
    this.typedIn = message;
    if (!text.trim()) return this.discard();
    this.timer = setTimeout(() => this.ask({ conversation, message }, text), text.length > LONG_CHARS ? LONG_QUIET_MS : QUIET_MS);
  }

  /** The text is gone: cleared, or left behind with its conversation. */
  discard(): void {
    const place = this.place;
    this.sent();
    if (place) this.tell(place, '');
  }

  /** The editor of a message is closed. */
  leave(message: MessageId): void {
    if (this.typedIn === message) this.discard();
  }

  /** The turn that was sent takes over what was read. */
  sent(): void {
    clearTimeout(this.timer);
    this.place = null;
    this.asked = '';
  }

  private ask(place: Place, text: string): void {
    const whole = standing(text);
    if (whole === this.asked && this.place?.conversation === place.conversation && this.place.message === place.message) return;
    this.asked = whole;
    this.place = place;
    this.tell(place, text);
  }

  // A failure only means that nothing is read ahead.
  private tell({ conversation, message }: Place, text: string): void {
    void this.backend.draft(conversation, message, text).catch(() => undefined);
  }
}

/** What most likely stands of a text: all before its last word, or a long run but for its end. From the end, since a pattern
 * would walk through every word of a long paste once for each of its letters. */
function standing(text: string): string {
  let end = text.length;
  while (end > 0 && text.length - end <= RUN_CHARS && !/\s/.test(text[end - 1])) end -= 1;
  if (text.length - end > RUN_CHARS) end = text.length - RUN_STEP - (text.length % RUN_STEP);
  return text.slice(0, end);
}
