import type { Backend } from '../backend/backend';
import type { ConversationId, MessageId, Unsent } from './types';

/** At most so long what was typed stands in the window alone. */
const EVERY_MS = 250;
/** Longer texts are kept less often: each save crosses several processes while the person types. */
const LONG_CHARS = 32_000;
const LONG_EVERY_MS = 1000;

/** Keeps with the history what is written and not sent, so that it is there again after the window is gone. */
export class UnsentKeeper {
  /** What earlier windows left, as far as nobody has taken it. */
  private found = $state.raw<readonly Unsent[]>([]);
  private loaded = false;
  /** What changed since it was kept, by place. */
  private readonly changed = new Map<string, Unsent>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  /** One write after the other: the last one must come last. */
  private writing: Promise<void> = Promise.resolve();

  constructor(private readonly backend: Backend) {}

  async load(): Promise<void> {
    if (this.loaded) return;
    // Without a history the page says so itself.
    const found = await this.backend.unsent().catch(() => null);
    if (this.loaded || !found) return;
    this.loaded = true;
    this.found = found;
  }

  /** Whether something waits in a conversation that was not opened yet. */
  has(conversation: ConversationId): boolean {
    return this.found.some((one) => one.conversation === conversation);
  }

  /** Hands over what waits in a conversation, or on the blank page. */
  take(conversation: ConversationId | null): Unsent[] {
    const taken = this.found.filter((one) => one.conversation === conversation);
    if (taken.length) this.found = this.found.filter((one) => one.conversation !== conversation);
    return taken;
  }

  /** Notes what stands in a place now. */
  note(conversation: ConversationId | null, message: MessageId | null, text: string): void {
    this.changed.set(`${conversation ?? ''} ${message ?? ''}`, { conversation, message, text });
    this.timer ??= setTimeout(() => void this.keep(), text.length > LONG_CHARS ? LONG_EVERY_MS : EVERY_MS);
  }

  /** Writes what was noted. */
  keep(): Promise<void> {
    clearTimeout(this.timer);
    this.timer = undefined;
    return (this.writing = this.writing.then(() => this.write()));
  }

  private async write(): Promise<void> {
    // Nothing is written over what was not read.
    await this.load();
    if (!this.loaded) return;
    const changed = [...this.changed.values()];
    this.changed.clear();
    // A conversation that is gone for good keeps nothing, and of a full disk the next message tells.
    await Promise.all(changed.map((one) => this.backend.keepUnsent(one).catch(() => undefined)));
  }
}

/** A message that is sent when the reply before it has ended. */
export interface Queued {
  readonly id: number;
  readonly text: string;
}

/** What is written in one conversation, or on the blank page, and not sent. */
export class Words {
  private composed = $state('');
  /** Queued messages, in the order of sending. */
  queue = $state.raw<readonly Queued[]>([]);
  /** The message on its way to the shell. It stays kept until it is stored. */
  private sending: string | null = null;
  private nextQueued = 1;
  /** Edits that were closed before they were sent, by their message: a word that was written is there when it is opened again. */
  edits = $state.raw<ReadonlyMap<MessageId, string>>(new Map());

  constructor(
    private readonly keeper: UnsentKeeper,
    private readonly conversation: ConversationId | null,
  ) {
    this.takeOver();
  }

  /** Takes over what an earlier window left here. */
  takeOver(): void {
    for (const { message, text } of this.keeper.take(this.conversation)) {
      if (message) this.edits = new Map([...this.edits, [message, text]]);
      else this.draft = joined([text, this.composed]);
    }
  }

  /** What stands in the composer. */
  get draft(): string {
    return this.composed;
  }

  set draft(text: string) {
    this.composed = text;
    this.note();
  }

  get any(): boolean {
    return this.composed.trim() !== '' || this.edits.size > 0 || this.queue.length > 0;
  }

  /** Takes from the composer what is being sent. It stays kept until it is a message. */
  send(text: string): void {
    this.sending = text;
    void this.keeper.keep();
    this.takeOut(text);
  }

  /** The message was refused: it returns in front of the draft or the queue. */
  takeBack(text: string): void {
    this.sending = null;
    if (this.queue.length > 0) this.queue = [this.queued(text), ...this.queue];
    else this.composed = joined([text, this.composed]);
    this.note();
  }

  /** What was being sent is a message. */
  sent(): void {
    this.sending = null;
    this.note();
  }

  /** Moves a message from the composer to the queue. */
  enqueue(text: string): void {
    this.queue = [...this.queue, this.queued(text)];
    this.takeOut(text);
    this.note();
    void this.keeper.keep();
  }

  /** Takes the oldest message from the queue, to be sent. */
  dequeue(): string | null {
    const [first, ...rest] = this.queue;
    if (!first) return null;
    this.queue = rest;
    this.sending = first.text;
    return first.text;
  }

  /** Moves a message to the front of the queue. */
  first({ id }: Queued): void {
    this.queue = [...this.queue.filter((one) => one.id === id), ...this.queue.filter((one) => one.id !== id)];
    this.note();
  }

  /** Removes a message from the queue. */
  unqueue({ id }: Queued): void {
    this.queue = this.queue.filter((one) => one.id !== id);
    this.note();
  }

  /** Moves a queued message back into the composer, in front of the draft. */
  reopen(queued: Queued): void {
    this.unqueue(queued);
    this.draft = joined([queued.text, this.composed]);
  }

  /** Puts a removed message back into the queue. */
  requeue({ text }: Queued): void {
    this.queue = [...this.queue, this.queued(text)];
    this.note();
  }

  private queued(text: string): Queued {
    return { id: this.nextQueued++, text };
  }

  private takeOut(text: string): void {
    if (this.composed.startsWith(text)) this.composed = this.composed.slice(text.length);
  }

  /** Keeps queue and draft as one text, in the order of sending; the next window shows it in the composer. */
  private note(): void {
    this.keeper.note(this.conversation, null, joined([this.sending ?? '', ...this.queue.map((one) => one.text), this.composed]));
  }

  /** Keeps what stands in the open edit of a message; an empty text is none. */
  noteEdit(message: MessageId, text: string): void {
    this.keeper.note(this.conversation, message, text);
  }

  closeEdit(message: MessageId, text: string): void {
    this.edits = new Map([...this.edits, [message, text]]);
  }

  /** The edit of a message is open again, or on its way: it stays kept. */
  openEdit(message: MessageId): void {
    if (this.edits.has(message)) this.edits = new Map([...this.edits].filter(([one]) => one !== message));
  }

  /** The edit of a message has become one, or was given up. */
  discardEdit(message: MessageId): void {
    this.openEdit(message);
    this.noteEdit(message, '');
  }
}

/** Joins texts with a blank line between them. */
function joined(texts: readonly string[]): string {
  return texts.filter(Boolean).join('\n\n');
}
