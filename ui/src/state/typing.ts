import type { Backend } from '../backend/backend';
import type { ConversationId, MessageId } from './types';

const QUIET_MS = 300;
/** Longer texts are sent less often, because each request sends the whole text to the engine. */
const LONG_CHARS = 32_000;
const LONG_QUIET_MS = 1000;
/** A run of characters without spaces (such a script, or data) is read ahead except for its last characters. */
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
  /** The part of the last request that is unlikely to change: all but the last word, or nearly all of a long run. */
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

/** The part of a text that is unlikely to change: all but its last word, or a long run without its end. Scans from the end: a pattern
 * would scan every word of a long paste once for each of its characters. */
function standing(text: string): string {
  let end = text.length;
  while (end > 0 && text.length - end <= RUN_CHARS && !/\s/.test(text[end - 1])) end -= 1;
  if (text.length - end > RUN_CHARS) end = text.length - RUN_STEP - (text.length % RUN_STEP);
  return text.slice(0, end);
}
