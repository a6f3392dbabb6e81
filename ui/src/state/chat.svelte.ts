import type { Backend } from '../backend/backend';
import { Edit } from './edit.svelte';
import { problemOf, type Problem } from './problem';
import { provisional } from './provisional';
import type { Stream, TurnKind } from './stream.svelte';
import { MessageTree } from './tree';
import { type Fallback, Turn, type TurnPage } from './turn.svelte';
import type { Typing } from './typing';
import { Words, type Queued, type UnsentKeeper } from './unsent.svelte';
import type { ContextUse, Conversation, ConversationId, EditCost, Message, MessageId, MessageState, Sampling, Shorten, WhenFull } from './types';

const FOLLOW_EVERY_MS = 700;
const CUT_OFF: ReadonlySet<MessageState> = new Set(['stopped', 'length', 'interrupted', 'failed']);

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
  /** A turn has loaded this model. */
  modelUsed(name: string): void;
  /** The turn ended while the reader was elsewhere. */
  finishedElsewhere(chat: Chat): void;
  isOpen(chat: Chat): boolean;
}

/** One conversation as the window holds it. It lives on when another one is opened: streams and drafts go on in it. */
export class Chat implements TurnPage {
  conversation = $state.raw() as Conversation;
  tree = $state.raw(new MessageTree([]));
  leaf = $state.raw<MessageId | null>(null);
  private turn = $state.raw<Turn | null>(null);
  edit = $state.raw<Edit | null>(null);
  problem = $state.raw<Problem | null>(null);
  context = $state.raw<ContextUse | null>(null);
  /** What the last turn did about a full context, in a line. */
  shortened = $state.raw<string | null>(null);
  /** The fallback that the last turn reported: another model had to answer. */
  fallback = $state.raw<Fallback | null>(null);
  loaded = $state(false);
  /** The message to scroll to, whether it gets the focus, and the index of the match in it. */
  reveal = $state.raw<{ id: MessageId; focus: boolean; nth?: number } | null>(null);
  /** The topmost visible message. */
  seen: MessageId | null = null;
  gone = false;
  /** Set while Regenerate is hovered or focused: this reply and the messages below it would be left behind. */
  leaves = $state.raw<MessageId | null>(null);
  /** A turn stopped in favour of the next queued message, which is sent when this turn ends. */
  private goOnAfter: Turn | null = null;
  private retry: (() => void) | null = null;
  /** Settings on their way to the shell: a turn waits for them. */
  private saving: Promise<unknown> = Promise.resolve();
  private readonly keys = new Map<MessageId, string>();
  private readonly remembered = new Map<MessageId, MessageId>();

  readonly stream: Stream | null = $derived(this.turn?.stream ?? null);

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

  /** Whether the prompt of this branch and one more token fit into the context. */
  readonly fits: boolean = $derived(!this.context || (!this.context.at_least && this.context.used < this.context.limit));

  readonly streaming: boolean = $derived(this.turn !== null);

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

  /** Whether a reply can be continued: it was cut off and ends the shown branch. */
  continues(message: Message): boolean {
    return !this.streaming && message.id === this.leaf && message.role === 'assistant' && CUT_OFF.has(message.state);
  }

  async load(): Promise<void> {
    try {
      const { conversation, messages } = await this.host.backend.getConversation(this.id);
      this.conversation = conversation;
      this.tree = new MessageTree(messages);
      if (!this.turn) this.leaf = conversation.active_leaf ?? this.tree.newestLeaf();
      this.loaded = true;
    } catch (cause) {
      this.fail(cause, () => void this.load());
    }
    void this.measureContext();
    this.followElsewhere();
  }

  /** A reply that is written but not streamed to this page (it was opened anew meanwhile) is read again until it stands. */
  private followElsewhere(): void {
    if (this.turn || this.gone || this.rows.at(-1)?.message.state !== 'generating') return;
    setTimeout(() => {
      if (!this.turn && !this.gone && this.host.isOpen(this)) void this.load();
    }, FOLLOW_EVERY_MS);
  }

  async measureContext(): Promise<void> {
    this.context = await this.host.backend.contextUse(this.id).catch(() => this.context);
  }

  // ---- turns

  async send(text: string): Promise<boolean> {
    if (this.turn || !text.trim()) return false;
    const parent = this.leaf;
    const turn = this.begin('send', parent, provisional(this.id, parent, 'user', text), null);
    const accepted = await turn.run(this.saving, (onEvent) => this.host.backend.sendMessage(this.id, parent, text, onEvent));
    if (turn.neverStored) this.words.takeBack(text);
    return accepted;
  }

  /** Sends the oldest queued message; false if the queue is empty or a turn is running. */
  sendNext(): boolean {
    if (this.turn || this.gone) return false;
    const text = this.words.dequeue();
    if (text === null) return false;
    void this.send(text);
    return true;
  }

  /** Moves a queued message to the front and stops the running turn, so that the message is sent next. */
  async sendNow(queued: Queued): Promise<void> {
    this.words.first(queued);
    if (!this.turn) return void this.sendNext();
    this.goOnAfter = this.turn;
    await this.stop();
  }

  async saveEdit(): Promise<void> {
    const edit = this.edit;
    if (!edit || this.turn || !edit.text.trim()) return;
    const { message, text } = edit;
    this.host.typing.sent();
    this.closeEdit();
    this.words.openEdit(message.id);
    if (message.role === 'assistant') return await this.saveReply(message, text, edit);
    const turn = this.begin('edit', message.parent, provisional(this.id, message.parent, 'user', text), null);
    await turn.run(this.saving, (onEvent) => this.host.backend.editMessage(this.id, message.id, text, onEvent));
    if (turn.neverStored) this.edit = edit;
    else this.words.discardEdit(message.id);
  }

  async regenerate(message: Message): Promise<void> {
    if (this.turn) return;
    const base = message.role === 'user' ? message.id : message.parent;
    const turn = this.begin('regenerate', base, null, null);
    await turn.run(this.saving, (onEvent) => this.host.backend.regenerate(this.id, message.id, onEvent));
  }

  async continueReply(message: Message): Promise<void> {
    if (this.turn) return;
    const turn = this.begin('continue', message.parent, null, message);
    await turn.run(this.saving, (onEvent) => this.host.backend.continueReply(this.id, message.id, onEvent));
  }

  /** Goes on in a shorter branch; the full one stays. */
  async shorten(how: Shorten): Promise<void> {
    if (this.turn) return;
    const turn = this.begin('shorten', this.leaf, null, null);
    turn.stream.shortening = { how, turns: 0 };
    await turn.run(this.saving, (onEvent) => this.host.backend.shorten(this.id, how, onEvent));
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
    if (this.turn) return;
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

  /** The cost of another system prompt; null if unknown. */
  async previewSystemPrompt(text: string): Promise<EditCost | null> {
    return await this.host.backend.previewSystemPrompt(this.id, text).catch(() => null);
  }

  async setSampling(sampling: Sampling): Promise<void> {
    this.conversation = { ...this.conversation, sampling };
    await this.save(this.host.backend.setSampling(this.id, sampling));
  }

  /** Sets the model that answers from now on; rejects if it cannot be used. */
  async setModel(model: string): Promise<void> {
    const writing = this.host.backend.setConversationModel(this.id, model);
    this.saving = Promise.all([this.saving, writing.catch(() => undefined)]);
    await writing;
    this.bind(model);
    this.fallback = null;
  }

  async setWhenFull(whenFull: WhenFull): Promise<void> {
    this.conversation = { ...this.conversation, when_full: whenFull };
    await this.save(this.host.backend.setWhenFull(this.id, whenFull));
  }

  /** Binds the conversation to the model that answered in place of its own. */
  fellBack(fallback: Fallback): void {
    this.fallback = fallback;
    this.bind(fallback.model);
  }

  /** A conversation without a model is bound to the first one that answers. */
  answered(model: string): void {
    if (this.conversation.model === null) this.bind(model);
    this.host.modelUsed(model);
  }

  private bind(model: string): void {
    if (this.conversation.model === model) return;
    this.conversation = { ...this.conversation, model };
    this.host.touched();
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

  // ---- what a turn needs of its page

  private begin(kind: TurnKind, base: MessageId | null, user: Message | null, reply: Message | null): Turn {
    this.clearProblem();
    this.closeEdit();
    this.leaves = null;
    this.shortened = null;
    this.fallback = null;
    return (this.turn = new Turn(this, kind, base, user, reply));
  }

  ended(turn: Turn): void {
    if (this.turn === turn) this.turn = null;
    if (turn.state && !this.gone && !this.host.isOpen(this)) this.host.finishedElsewhere(this);
    // After a stopped or failed turn the queue waits, so that the reader can look first.
    // It also waits if the reader has switched to another branch.
    const endedWell = (turn.state === 'complete' || turn.state === 'length') && this.leaf === turn.stream.reply?.id;
    if (endedWell || this.goOnAfter === turn) queueMicrotask(() => this.sendNext());
  }

  changed(): void {
    this.host.touched();
    void this.measureContext();
  }

  sameRow(stored: MessageId, shown: MessageId): void {
    this.keys.set(stored, this.keys.get(shown) ?? shown);
  }

  retryOf({ kind, stream }: Turn): (() => void) | null {
    const user = stream.user && this.tree.get(stream.user.id);
    const reply = stream.reply && this.tree.get(stream.reply.id);
    if (kind === 'shorten') return stream.shortening ? () => void this.shorten(stream.shortening?.how ?? 'compact') : null;
    if (kind === 'continue' && reply) return () => void this.continueReply(reply);
    if (user) return () => void this.regenerate(user);
    if (kind === 'regenerate') {
      const base = this.tree.get(stream.base);
      return base ? () => void this.regenerate(base) : null;
    }
    if (kind === 'edit') return () => void this.saveEdit();
    return () => {
      if (this.sendNext()) return;
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
