import type { OnTurnEvent } from '../backend/backend';
import { shortenedWords } from './format';
import { contextProblem, type Problem } from './problem';
import { isProvisional, provisional } from './provisional';
import { Stream, type TurnKind } from './stream.svelte';
import type { MessageTree } from './tree';
import type { ConversationId, Message, MessageId, MessageState, TurnEvent } from './types';
import type { Words } from './unsent.svelte';

/** Another model answers than the one that the conversation had. */
export interface Fallback {
  wanted: string;
  reason: string;
  model: string;
}

/** The conversation that a turn writes in. */
export interface TurnPage {
  readonly id: ConversationId;
  readonly words: Words;
  tree: MessageTree;
  leaf: MessageId | null;
  shortened: string | null;
  problem: Problem | null;
  readonly gone: boolean;
  /** What the list of conversations or the context's measure shows may have changed. */
  changed(): void;
  /** A message keeps the row in which it was shown before it was stored. */
  sameRow(stored: MessageId, shown: MessageId): void;
  fellBack(fallback: Fallback): void;
  /** A model has written a reply. */
  answered(model: string): void;
  fail(cause: unknown, retry: (() => void) | null): void;
  /** How to ask once more for what `turn` asked for; null when there is nothing to ask for. */
  retryOf(turn: Turn): (() => void) | null;
  load(): Promise<void>;
  /** The turn has ended: another may begin. */
  ended(turn: Turn): void;
}

/** One turn from its asking to its end: takes the shell's events, and puts what is stored in the place of what is shown. */
export class Turn {
  readonly stream: Stream;
  /** How the reply ended; null while there is none that has. */
  state: MessageState | null = null;
  private over = false;

  constructor(
    private readonly page: TurnPage,
    readonly kind: TurnKind,
    base: MessageId | null,
    user: Message | null,
    reply: Message | null,
  ) {
    this.stream = new Stream(kind, base, reply?.text ?? '');
    this.stream.user = user;
    this.stream.reply = reply ?? provisional(page.id, user?.id ?? base, 'assistant', '');
  }

  /** The shell has not taken the words of this turn. */
  get neverStored(): boolean {
    return this.stream.user !== null && isProvisional(this.stream.user);
  }

  /** Runs to the end, once `ready`; false when it was refused or failed. */
  async run(ready: Promise<unknown>, ask: (onEvent: OnTurnEvent) => Promise<void>): Promise<boolean> {
    return await new Promise((resolve) => {
      const end = (ok: boolean) => {
        this.over = true;
        this.page.ended(this);
        resolve(ok);
      };
      const onEvent = (event: TurnEvent) => {
        if (!this.page.gone && !this.over) this.receive(event, end);
      };
      ready.then(() => ask(onEvent)).catch((cause: unknown) => {
        if (this.over) return;
        this.keepShownText();
        end(false);
        this.page.fail(cause, this.page.retryOf(this));
      });
    });
  }

  private receive(event: TurnEvent, end: (ok: boolean) => void): void {
    const { page, stream } = this;
    switch (event.event) {
      case 'started':
        this.confirm(event.user, event.reply);
        break;
      case 'model_fallback':
        page.fellBack(event);
        break;
      case 'shortening':
        stream.shortening = event;
        break;
      case 'shortened':
        this.takeShorter(event.messages);
        page.shortened = shortenedWords(event.how, event.turns, event.left_out);
        break;
      case 'prefill':
        stream.progress = event;
        break;
      case 'token':
        stream.push(event.text);
        break;
      case 'finished':
        this.finish(event);
        end(true);
        break;
      case 'context_full':
        end(false);
        page.problem = contextProblem(event);
        page.changed();
        break;
      case 'error':
        this.breakOff(event, end);
        break;
    }
  }

  private breakOff(error: Extract<TurnEvent, { event: 'error' }>, end: (ok: boolean) => void): void {
    // Stopped before it began: nothing went wrong.
    if (error.code === 'stopped') return end(true);
    this.keepShownText();
    end(false);
    if (error.code === 'engine_restarted') {
      // The history knows what was written until then, and the reply can go on from there.
      this.page.fail({ code: error.code, message: '' }, null);
      void this.page.load();
    } else this.page.fail(error, this.page.retryOf(this));
  }

  /** The shorter branch stands: it is shown, and a reply that follows belongs to it. */
  private takeShorter(messages: Message[]): void {
    const { page, stream } = this;
    const leaf = messages.at(-1);
    if (!leaf) return;
    page.tree = page.tree.with(messages);
    stream.beginAgain(leaf.id, '');
    stream.user = null;
    stream.reply = provisional(page.id, leaf.id, 'assistant', '');
    stream.started = false;
    page.leaf = leaf.id;
    page.changed();
  }

  /** The shell has stored messages: they take the place of the provisional ones. */
  private confirm(user: Message | null, reply: Message | null): void {
    const { page, stream } = this;
    const stored: Message[] = [];
    if (user) {
      if (stream.user) page.sameRow(user.id, stream.user.id);
      stored.push(user);
      stream.user = user;
      page.words.sent();
    }
    if (reply) {
      // A reply that goes on begins with what the engine says, which is not always what was shown where it was cut.
      if (page.tree.get(reply.id) && reply.text !== stream.before) stream.beginAgain(stream.base ?? reply.id, reply.text);
      if (stream.reply && !page.tree.get(reply.id)) page.sameRow(reply.id, stream.reply.id);
      // While it streams, the text is the stream's.
      stored.push({ ...reply, state: 'generating' });
      stream.reply = reply;
      const stayed = page.leaf === stream.base || stream.kind !== 'send' || page.leaf === stream.user?.id;
      if (stayed && !stream.started) page.leaf = reply.id;
      stream.started = true;
    } else if (user && stream.reply) {
      stream.reply = { ...stream.reply, parent: user.id };
      page.leaf = user.id;
    }
    page.tree = page.tree.with(stored);
    page.changed();
  }

  private finish(event: Extract<TurnEvent, { event: 'finished' }>): void {
    const { page, stream } = this;
    stream.flush();
    this.state = event.state;
    const { prefill, prompt_tokens, completion_tokens, ttft_ms, tokens_per_s, restore_ms } = event;
    const reply = page.tree.get(event.message) ?? stream.reply;
    // A shorter branch in which nothing waited for the model.
    const nothingWritten = stream.kind === 'shorten' && !stream.started;
    if (prompt_tokens > 0 && event.model !== null) page.answered(event.model);
    if (reply && !nothingWritten) {
      const stats = { prefill, prompt_tokens, completion_tokens, ttft_ms, tokens_per_s, restore_ms };
      const done: Message = { ...reply, id: event.message, model: event.model, text: event.text, state: event.state, stats, num_tokens: completion_tokens };
      if (!page.tree.get(event.message)) page.leaf = event.message;
      page.tree = page.tree.with([done]);
    }
    page.changed();
  }

  /** A turn that broke off keeps what was shown. */
  private keepShownText(): void {
    const { page, stream } = this;
    stream.flush();
    const reply = stream.reply && page.tree.get(stream.reply.id);
    if (reply) page.tree = page.tree.with([{ ...reply, text: stream.text, state: 'failed' }]);
  }
}
