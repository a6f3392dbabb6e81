import type { OnTurnEvent } from '../backend/backend';
import { shortenedWords } from './format';
import { contextProblem, type Problem } from './problem';
import { isProvisional, provisional } from './provisional';
import { Stream, type TurnKind } from './stream.svelte';
import type { MessageTree } from './tree';
import type { ConversationId, Message, MessageId, MessageState, TurnEvent } from './types';
import type { Words } from './unsent.svelte';

/** The model of the conversation could not answer, and `model` answers instead. */
export interface Fallback {
  wanted: string;
  reason: string;
  model: string;
}

/** The view of a conversation that a turn changes. */
export interface TurnPage {
  readonly id: ConversationId;
  readonly words: Words;
  tree: MessageTree;
  leaf: MessageId | null;
  shortened: string | null;
  problem: Problem | null;
  readonly gone: boolean;
  /** The list of conversations or the context use may have changed. */
  changed(): void;
  /** The stored message keeps the row of the provisional one. */
  sameRow(stored: MessageId, shown: MessageId): void;
  fellBack(fallback: Fallback): void;
  /** This model wrote a reply. */
  answered(model: string): void;
  fail(cause: unknown, retry: (() => void) | null): void;
  /** The function that retries `turn`; null if there is nothing to retry. */
  retryOf(turn: Turn): (() => void) | null;
  load(): Promise<void>;
  /** The turn has ended, so the next one may begin. */
  ended(turn: Turn): void;
}

/** One turn from its request to its last event: applies the events of the shell and replaces provisional messages by stored ones. */
export class Turn {
  readonly stream: Stream;
  /** The state in which the reply ended; null until then. */
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

  /** The shell has not stored the message of this turn. */
  get neverStored(): boolean {
    return this.stream.user !== null && isProvisional(this.stream.user);
  }

  /** Runs the turn after `ready`; false if it was refused or failed. */
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
    // Stopped before it began, which is no error.
    if (error.code === 'stopped') return end(true);
    this.keepShownText();
    end(false);
    if (error.code === 'engine_restarted') {
      // The history has the text up to here, and the reply can be continued.
      this.page.fail({ code: error.code, message: '' }, null);
      void this.page.load();
    } else this.page.fail(error, this.page.retryOf(this));
  }

  /** Shows the shorter branch; a reply that follows is written in it. */
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

  /** Stored messages replace the provisional ones. */
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
      // The engine may drop text from the end of a reply it continues (half a character), so its text replaces the shown one.
      if (page.tree.get(reply.id) && reply.text !== stream.before) stream.beginAgain(stream.base ?? reply.id, reply.text);
      if (stream.reply && !page.tree.get(reply.id)) page.sameRow(reply.id, stream.reply.id);
      // While the reply streams, its text is read from the stream.
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
    // The shorter branch ended with a finished reply, so no model ran.
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

  /** After a failure the streamed text stays visible. */
  private keepShownText(): void {
    const { page, stream } = this;
    stream.flush();
    const reply = stream.reply && page.tree.get(stream.reply.id);
    if (reply) page.tree = page.tree.with([{ ...reply, text: stream.text, state: 'failed' }]);
  }
}
