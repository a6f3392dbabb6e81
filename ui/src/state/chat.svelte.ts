import type { Backend, OnTurnEvent } from '../backend/backend';
import { Edit } from './edit.svelte';
import { count, shortenedWords } from './format';
import { contextProblem, problemOf, type Problem } from './problem';
import { Stream, type TurnKind } from './stream.svelte';
import { MessageTree } from './tree';
import { isProvisional, provisional } from './turn';
import type { Typing } from './typing';
import { Words, type UnsentKeeper } from './unsent.svelte';
import type { ContextUse, Conversation, ConversationId, Message, MessageId, Sampling, Shorten, TurnEvent, WhenFull } from './types';

const FOLLOW_EVERY_MS = 700;

export interface Row {
  /** Stays the same while a message goes from provisional to stored, so that nothing is drawn anew. */
  key: string;
  message: Message;
  live: Stream | null;
}

export interface ChatHost {
  readonly backend: Backend;
  readonly typing: Typing;
  readonly unsent: UnsentKeeper;
  /** Something the list of conversations shows has changed. */
  touched(): void;
  /** The turn ended while the reader was elsewhere. */
  finishedElsewhere(chat: Chat): void;
  isOpen(chat: Chat): boolean;
}

/** One conversation as the window holds it. It lives on when another one is opened: streams and drafts go on in it. */
export class Chat {
  conversation = $state.raw() as Conversation;
  tree = $state.raw(new MessageTree([]));
  leaf = $state.raw<MessageId | null>(null);
  stream = $state.raw<Stream | null>(null);
  edit = $state.raw<Edit | null>(null);
  problem = $state.raw<Problem | null>(null);
  context = $state.raw<ContextUse | null>(null);
  /** What the last turn did about a full context, in a line. */
  shortened = $state.raw<string | null>(null);
  loaded = $state(false);
  /** A message to bring into view, and whether the focus goes there. */
  reveal = $state.raw<{ id: MessageId; focus: boolean } | null>(null);
  gone = false;
  private retry: (() => void) | null = null;
  /** Settings on their way to the shell: a turn waits for them. */
  private saving: Promise<unknown> = Promise.resolve();
  private readonly keys = new Map<MessageId, string>();
  private readonly remembered = new Map<MessageId, MessageId>();

  readonly rows: Row[] = $derived.by(() => {
    const stream = this.stream;
    const row = (message: Message): Row => ({
      key: this.keys.get(message.id) ?? message.id,
      message,
      live: stream && stream.reply?.id === message.id ? stream : null,
    });
    if (!stream || stream.started) return this.tree.branch(this.leaf).map(row);
    const pending = [stream.user, stream.reply].filter((message) => message !== null);
    return [...this.tree.branch(stream.base), ...pending].map(row);
  });

  readonly streaming: boolean = $derived(this.stream !== null);

  constructor(
    private readonly host: ChatHost,
    conversation: Conversation,
    /** What is written here and not sent. */
    readonly words = new Words(host.unsent, conversation.id),
  ) {
    this.conversation = conversation;
  }

  get id(): ConversationId {
    return this.conversation.id;
  }

  async load(): Promise<void> {
    try {
      const { conversation, messages } = await this.host.backend.getConversation(this.id);
      this.conversation = conversation;
      this.tree = new MessageTree(messages);
      if (!this.stream) this.leaf = conversation.active_leaf ?? this.tree.newestLeaf();
      this.loaded = true;
    } catch (cause) {
      this.fail(cause, () => void this.load());
    }
    void this.measureContext();
    this.followElsewhere();
  }

  /** A reply that is written but not streamed to this page (it was opened anew meanwhile) is read again until it stands. */
  private followElsewhere(): void {
    if (this.stream || this.gone || this.rows.at(-1)?.message.state !== 'generating') return;
    setTimeout(() => {
      if (!this.stream && !this.gone && this.host.isOpen(this)) void this.load();
    }, FOLLOW_EVERY_MS);
  }

  async measureContext(): Promise<void> {
    this.context = await this.host.backend.contextUse(this.id).catch(() => this.context);
  }

  // ---- turns

  async send(text: string): Promise<boolean> {
    if (this.stream || !text.trim()) return false;
    const user = provisional(this.id, this.leaf, 'user', text);
    const stream = this.begin('send', this.leaf, user, null);
    const parent = this.leaf;
    const accepted = await this.run(stream, (onEvent) => this.host.backend.sendMessage(this.id, parent, text, onEvent));
    if (neverStored(stream)) this.words.takeBack(text);
    return accepted;
  }

  async saveEdit(): Promise<void> {
    const edit = this.edit;
    if (!edit || this.stream || !edit.text.trim()) return;
    const { message, text } = edit;
    this.host.typing.sent();
    this.closeEdit();
    this.words.openEdit(message.id);
    if (message.role === 'assistant') await this.saveReply(message, text, edit);
    else {
      const user = provisional(this.id, message.parent, 'user', text);
      const stream = this.begin('edit', message.parent, user, null);
      await this.run(stream, (onEvent) => this.host.backend.editMessage(this.id, message.id, text, onEvent));
      if (neverStored(stream)) this.edit = edit;
      else this.words.discardEdit(message.id);
    }
  }

  async regenerate(message: Message): Promise<void> {
    if (this.stream) return;
    const base = message.role === 'user' ? message.id : message.parent;
    const stream = this.begin('regenerate', base, null, null);
    await this.run(stream, (onEvent) => this.host.backend.regenerate(this.id, message.id, onEvent));
  }

  async continueReply(message: Message): Promise<void> {
    if (this.stream) return;
    const stream = this.begin('continue', message.parent, null, message);
    await this.run(stream, (onEvent) => this.host.backend.continueReply(this.id, message.id, onEvent));
  }

  /** Goes on in a shorter branch; the full one stays. */
  async shorten(how: Shorten): Promise<void> {
    if (this.stream) return;
    const stream = this.begin('shorten', this.leaf, null, null);
    stream.shortening = { how, turns: 0 };
    await this.run(stream, (onEvent) => this.host.backend.shorten(this.id, how, onEvent));
  }

  async raiseContext(): Promise<void> {
    this.clearProblem();
    await this.host.backend.raiseContext().catch((cause) => this.fail(cause, null));
    await this.measureContext();
  }

  async stop(): Promise<void> {
    if (!this.stream || this.stream.stopping) return;
    this.stream.stopping = true;
    await this.host.backend.stop(this.id).catch(() => undefined);
  }

  // ---- branches and edits

  /** Opens a message with the words it has, or those that an edit of it was left with. */
  startEdit(message: Message, text = this.words.edits.get(message.id)): void {
    if (this.stream) return;
    this.closeEdit();
    this.words.openEdit(message.id);
    this.edit = new Edit(this.host.backend, this.host.typing, this.words, message, text);
    this.reveal = { id: message.id, focus: false };
  }

  /** Opens the last message of the person; false when there is none. */
  startEditLast(): boolean {
    const message = this.rows.findLast((row) => row.message.role === 'user')?.message;
    if (message) this.startEdit(message);
    return message !== undefined;
  }

  /** Puts an edit aside. What was changed in it is kept. */
  closeEdit(): void {
    const edit = this.edit;
    if (!edit) return;
    edit.close();
    this.edit = null;
    if (edit.changed) this.words.closeEdit(edit.message.id, edit.text);
  }

  /** Gives up what was changed in an edit. */
  discardEdit(): void {
    const id = this.edit?.message.id;
    this.closeEdit();
    if (id) this.words.discardEdit(id);
  }

  /** Turns to the branch through `message`, where the reader last left it. */
  async showBranch(message: Message): Promise<void> {
    for (const step of this.tree.branch(this.leaf)) if (step.parent) this.remembered.set(step.parent, step.id);
    const leaf = this.tree.leafUnder(message.id, this.remembered);
    if (leaf === this.leaf) return;
    this.closeEdit();
    this.leaf = leaf;
    await this.host.backend.setActiveLeaf(this.id, leaf).catch((cause) => this.fail(cause, null));
    // Another branch is looked at.
    if (this.host.isOpen(this)) void this.host.backend.openConversation(this.id).catch(() => undefined);
    void this.measureContext();
  }

  async showMessage(id: MessageId): Promise<void> {
    const message = this.tree.get(id);
    if (!message) return;
    if (!this.tree.branch(this.leaf).some((step) => step.id === id)) await this.showBranch(message);
    this.reveal = { id, focus: true };
  }

  async setSystemPrompt(text: string): Promise<void> {
    if (text === this.conversation.system_prompt) return;
    this.conversation = { ...this.conversation, system_prompt: text };
    await this.save(this.host.backend.setSystemPrompt(this.id, text));
    void this.measureContext();
  }

  async setSampling(sampling: Sampling): Promise<void> {
    this.conversation = { ...this.conversation, sampling };
    await this.save(this.host.backend.setSampling(this.id, sampling));
  }

  async setWhenFull(whenFull: WhenFull): Promise<void> {
    this.conversation = { ...this.conversation, when_full: whenFull };
    await this.save(this.host.backend.setWhenFull(this.id, whenFull));
  }

  private save(writing: Promise<void>): Promise<unknown> {
    const saved = writing.catch((cause) => this.fail(cause, null));
    this.saving = Promise.all([this.saving, saved]);
    return saved;
  }

  // ---- problems

  fail(cause: unknown, retry: (() => void) | null): void {
    this.retry = retry;
    this.problem = problemOf(cause, retry !== null);
  }

  tryAgain(): void {
    const retry = this.retry;
    this.clearProblem();
    retry?.();
  }

  clearProblem(): void {
    this.problem = null;
    this.retry = null;
  }

  // ---- the stream

  private begin(kind: TurnKind, base: MessageId | null, user: Message | null, reply: Message | null): Stream {
    this.clearProblem();
    this.closeEdit();
    this.shortened = null;
    const stream = new Stream(kind, base, reply?.text ?? '');
    stream.user = user;
    stream.reply = reply ?? provisional(this.id, user?.id ?? base, 'assistant', '');
    this.stream = stream;
    return stream;
  }

  /** Runs a turn to its end; false when it was refused or failed. */
  private async run(stream: Stream, ask: (onEvent: OnTurnEvent) => Promise<void>): Promise<boolean> {
    return await new Promise((resolve) => {
      const end = (ok: boolean) => {
        if (this.stream === stream) this.stream = null;
        resolve(ok);
      };
      const onEvent = (event: TurnEvent) => {
        if (!this.gone && this.stream === stream) this.receive(stream, event, end);
      };
      this.saving.then(() => ask(onEvent)).catch((cause: unknown) => {
        if (this.stream !== stream) return;
        this.keepShownText(stream);
        end(false);
        this.fail(cause, this.retryOf(stream));
      });
    });
  }

  private receive(stream: Stream, event: TurnEvent, end: (ok: boolean) => void): void {
    switch (event.event) {
      case 'started':
        this.confirm(stream, event.user, event.reply);
        break;
      case 'shortening':
        stream.shortening = event;
        break;
      case 'shortened':
        this.takeShorter(stream, event.messages);
        this.shortened = shortenedWords(event.how, event.turns, event.left_out);
        break;
      case 'prefill':
        stream.progress = event;
        break;
      case 'token':
        stream.push(event.text);
        break;
      case 'finished':
        this.finish(stream, event);
        end(true);
        break;
      case 'context_full':
        end(false);
        this.problem = contextProblem(count(event.needed_tokens), count(event.limit_tokens), event.choices);
        void this.measureContext();
        break;
      case 'error':
        // Stopped before it began: nothing went wrong.
        if (event.code === 'stopped') return end(true);
        this.keepShownText(stream);
        end(false);
        if (event.code === 'engine_restarted') {
          // The history knows what was written until then, and the reply can go on from there.
          this.fail({ code: event.code, message: '' }, null);
          void this.load();
        } else this.fail(event, this.retryOf(stream));
        break;
    }
  }

  /** The shorter branch stands: it is shown, and a reply that follows belongs to it. */
  private takeShorter(stream: Stream, messages: Message[]): void {
    const leaf = messages.at(-1);
    if (!leaf) return;
    this.tree = this.tree.with(messages);
    stream.beginAgain(leaf.id, '');
    stream.user = null;
    stream.reply = provisional(this.id, leaf.id, 'assistant', '');
    stream.started = false;
    this.leaf = leaf.id;
    this.host.touched();
  }

  /** The shell has stored messages: they take the place of the provisional ones. */
  private confirm(stream: Stream, user: Message | null, reply: Message | null): void {
    const stored: Message[] = [];
    if (user) {
      if (stream.user) this.keys.set(user.id, stream.user.id);
      stored.push(user);
      stream.user = user;
      this.words.sent();
    }
    if (reply) {
      // A reply that goes on in a shorter branch begins with what it has.
      if (reply.text && this.tree.get(reply.id) && reply.text !== stream.before) stream.beginAgain(stream.base ?? reply.id, reply.text);
      if (stream.reply && !this.tree.get(reply.id)) this.keys.set(reply.id, this.keys.get(stream.reply.id) ?? stream.reply.id);
      // While it streams, the text is the stream's.
      stored.push({ ...reply, state: 'generating' });
      stream.reply = reply;
      const stayed = this.leaf === stream.base || stream.kind !== 'send' || this.leaf === stream.user?.id;
      if (stayed && !stream.started) this.leaf = reply.id;
      stream.started = true;
    } else if (user && stream.reply) {
      stream.reply = { ...stream.reply, parent: user.id };
      this.leaf = user.id;
    }
    this.tree = this.tree.with(stored);
    this.host.touched();
    void this.measureContext();
  }

  private finish(stream: Stream, event: Extract<TurnEvent, { event: 'finished' }>): void {
    stream.flush();
    const { prefill, prompt_tokens, completion_tokens, ttft_ms, tokens_per_s, restore_ms } = event;
    const reply = this.tree.get(event.message) ?? stream.reply;
    // A shorter branch in which nothing waited for the model.
    const nothingWritten = stream.kind === 'shorten' && !stream.started;
    if (reply && !nothingWritten) {
      const stats = { prefill, prompt_tokens, completion_tokens, ttft_ms, tokens_per_s, restore_ms };
      const text = stream.finalText(event.text);
      const done: Message = { ...reply, id: event.message, text, state: event.state, stats, num_tokens: completion_tokens };
      if (!this.tree.get(event.message)) this.leaf = event.message;
      this.tree = this.tree.with([done]);
    }
    this.host.touched();
    void this.measureContext();
    if (!this.host.isOpen(this)) this.host.finishedElsewhere(this);
  }

  /** A turn that broke off keeps what was shown. */
  private keepShownText(stream: Stream): void {
    stream.flush();
    const reply = stream.reply && this.tree.get(stream.reply.id);
    if (reply) this.tree = this.tree.with([{ ...reply, text: stream.text, state: 'failed' }]);
  }

  private retryOf(stream: Stream): (() => void) | null {
    const user = stream.user && this.tree.get(stream.user.id);
    const reply = stream.reply && this.tree.get(stream.reply.id);
    if (stream.kind === 'shorten') return stream.shortening ? () => void this.shorten(stream.shortening?.how ?? 'compact') : null;
    if (stream.kind === 'continue' && reply) return () => void this.continueReply(reply);
    if (user) return () => void this.regenerate(user);
    if (stream.kind === 'regenerate') {
      const base = this.tree.get(stream.base);
      return base ? () => void this.regenerate(base) : null;
    }
    if (stream.kind === 'edit') return () => void this.saveEdit();
    return () => {
      const text = this.words.draft;
      this.words.send(text);
      void this.send(text);
    };
  }

  /** An edited reply is stored beside the old one; no model runs. */
  private async saveReply(message: Message, text: string, edit: Edit): Promise<void> {
    try {
      await this.host.backend.editMessage(this.id, message.id, text, (event) => {
        if (event.event === 'error') {
          this.edit = edit;
          this.fail(event, () => void this.saveEdit());
        }
        if (event.event === 'started' && event.reply) {
          this.words.discardEdit(message.id);
          this.showStored(event.reply);
        }
        if (event.event === 'finished') void this.load();
      });
    } catch (cause) {
      this.edit = edit;
      this.fail(cause, () => void this.saveEdit());
    }
  }

  private showStored(reply: Message): void {
    this.tree = this.tree.with([reply]);
    this.leaf = reply.id;
  }
}

/** The shell has not taken the words of this turn. */
function neverStored(stream: Stream): boolean {
  return stream.user !== null && isProvisional(stream.user);
}
