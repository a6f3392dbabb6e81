import { SvelteMap } from 'svelte/reactivity';
import type { Backend } from '../backend/backend';
import { wholeText } from '../backend/text';
import { Cache } from './cache.svelte';
import { Chat, type ChatHost } from './chat.svelte';
import { drawn } from './drawn';
import { Export } from './export';
import { Find } from './find.svelte';
import { takeFiles, type DroppedFile } from './files';
import { shortName } from './format';
import { Memory } from './memory.svelte';
import { Menu } from './menu.svelte';
import { DraftCost, type Place } from './cost.svelte';
import { Models } from './models.svelte';
import { Privacy } from './privacy.svelte';
import { asApiError, problemOf, type Problem } from './problem';
import type { Stream } from './stream.svelte';
import { Search } from './search.svelte';
import { Toasts } from './toasts.svelte';
import { Typing } from './typing';
import { UnsentKeeper, Words } from './unsent.svelte';
import { Warming } from './warming';
import { Zoom } from './zoom.svelte';
import type { Conversation, ConversationId, EditCost, MessageId, Sampling, SearchHit } from './types';

const DEFAULT_SAMPLING: Sampling = {
  temperature: 0.7, top_k: null, top_p: 0.95, min_p: 0.05, repetition_penalty: 1, seed: null, max_tokens: null, stop: [],
};

// Minimum window widths that leave the page 480 px beside the settings: with the sidebar (264 + 320 + 480), and without it.
const BESIDE_BOTH = 1064;
const BESIDE_PAGE = 800;

/** What is on the blank page of a conversation that does not exist yet. */
export interface Beginning {
  systemPrompt: string;
  sampling: Sampling;
}

/** The whole window: which conversation is open, the list beside it, and what lies over it. */
export class App implements ChatHost {
  conversations = $state.raw<Conversation[]>([]);
  ready = $state(false);
  /** The conversations are encrypted, and nobody has said the passphrase. */
  locked = $state(false);
  /** The open conversation; null is the blank page. */
  open = $state.raw<Chat | null>(null);
  beginning = $state<Beginning>({ systemPrompt: '', sampling: DEFAULT_SAMPLING });
  problem = $state.raw<Problem | null>(null);
  settingsOpen = $state(false);
  sidebarOpen = $state(true);
  /** The width of the window in CSS pixels. */
  width = $state(1180);
  /** The window is too narrow for the sidebar to stand beside the page: it lies over it. */
  narrow = $state(false);
  /** Conversations whose reply ended while the reader was elsewhere. */
  unread = $state.raw<ReadonlySet<ConversationId>>(new Set());
  readonly models: Models;
  readonly search: Search;
  readonly find = new Find(() => this.open);
  readonly cache: Cache;
  readonly memory: Memory;
  readonly privacy: Privacy;
  readonly warming: Warming;
  readonly typing: Typing;
  /** The cost of sending the draft. */
  readonly draftCost: DraftCost;
  readonly unsent: UnsentKeeper;
  /** What is written on the blank page. */
  readonly blank: Words;
  readonly toasts = new Toasts();
  readonly menu = new Menu();
  readonly export: Export;
  readonly zoom: Zoom;
  /** The window is too narrow for the settings beside the page: they overlay it. */
  readonly settingsOver: boolean = $derived(this.width < (this.sidebarOpen && !this.narrow ? BESIDE_BOTH : BESIDE_PAGE));
  private readonly chats = new SvelteMap<ConversationId, Chat>();
  /** Conversations with a running turn. */
  readonly writing: ReadonlySet<ConversationId> = $derived(new Set([...this.chats.values()].filter((chat) => chat.streaming).map((chat) => chat.id)));
  /** The running turns of all conversations. */
  readonly streams: readonly Stream[] = $derived([...this.chats.values()].flatMap((chat) => chat.stream ?? []));
  private creating = false;

  constructor(readonly backend: Backend) {
    this.models = new Models(backend);
    this.search = new Search(backend);
    this.cache = new Cache(backend);
    this.memory = new Memory(backend, () => void this.models.refresh());
    this.privacy = new Privacy(backend);
    this.warming = new Warming(backend);
    this.typing = new Typing(backend);
    this.draftCost = new DraftCost(backend);
    this.unsent = new UnsentKeeper(backend);
    this.blank = new Words(this.unsent, null);
    this.zoom = new Zoom(backend);
    this.export = new Export(backend, this.toasts, (cause) => (this.problem = problemOf(cause, false)));
  }

  async start(): Promise<void> {
    await this.refreshList();
    // Before the rest of the start: a large model may take long to load.
    void drawn().then(() => this.backend.pageDrawn()).catch(() => undefined);
    if (this.locked) return;
    const [view] = await Promise.all([this.backend.view().catch(() => null), this.models.refresh(), this.unsent.load()]);
    if (view) void this.zoom.set(view.zoom);
    this.blank.takeOver();
    // Reopens the last conversation, unless a draft or another conversation has been opened meanwhile.
    const { conversation } = view ?? {};
    if (!this.ready && conversation && !this.open && !this.draft) await this.openConversation(conversation);
    this.ready = true;
  }

  /** Says the passphrase; the problem, if there is one. */
  async unlock(passphrase: string): Promise<Problem | null> {
    try {
      await this.backend.unlock(passphrase);
    } catch (cause) {
      return problemOf(cause, false);
    }
    this.locked = false;
    await this.start();
    return null;
  }

  async refreshList(): Promise<void> {
    try {
      // Already sorted by last use: the history knows the order better than the timestamps.
      this.conversations = await this.backend.listConversations();
    } catch (cause) {
      this.locked = asApiError(cause).code === 'locked';
      if (this.locked) return;
      this.problem = problemOf(cause, false);
    }
  }

  get draft(): string {
    return this.words.draft;
  }

  set draft(text: string) {
    // Memory may have been given back since the conversation was opened; it comes while the rest is typed.
    if (this.open && !this.draft && text) this.look(this.open.id);
    this.words.draft = text;
  }

  /** The model that answers here: in the open conversation, or in a new one. */
  get model(): string | null {
    return this.models.answering(this.open?.conversation ?? null);
  }

  /** Sets the model of this and of new conversations. False if it cannot be loaded; nothing has changed then. */
  async chooseModel(name: string): Promise<boolean> {
    const chat = this.open;
    const before = chat?.conversation.model ?? null;
    try {
      await chat?.setModel(name);
    } catch (cause) {
      this.models.problem = problemOf(cause, false);
      return false;
    }
    if (!(await this.models.load(name))) {
      if (before !== null && before !== name) await chat?.setModel(before).catch(() => undefined);
      return false;
    }
    // A turn that failed for lack of a model is retried with this one.
    if (chat?.problem?.code.startsWith('model_')) chat.tryAgain();
    return true;
  }

  private get words(): Words {
    return this.open?.words ?? this.blank;
  }

  /** A conversation has something written that is not sent. */
  hasUnsent(id: ConversationId): boolean {
    return this.chats.get(id)?.words.any ?? this.unsent.has(id);
  }

  /** There is something written that is not sent. */
  get holdsWords(): boolean {
    const open = (chat: Chat) => chat.words.any || (chat.edit?.changed ?? false);
    return this.blank.any || [...this.chats.values()].some(open);
  }

  /** What is written in the composer is read ahead while it is written. */
  write(written: string): void {
    const text = this.whole(written);
    this.draft = text;
    if (this.open) this.typing.write(this.open.id, null, text);
    this.draftCost.write(this.place, text);
  }

  /** Replaces half characters and NUL, which the shell cannot take, and says so in a toast. */
  whole(text: string): string {
    const whole = wholeText(text);
    if (whole !== text) this.toasts.show('Signs that are no text were replaced by \uFFFD', undefined, 8000);
    return whole;
  }

  /** Takes dropped or pasted files: text files go into the draft, and a toast gives the reason for each refused file. */
  async takeFiles(files: readonly DroppedFile[]): Promise<void> {
    const { text, refusals } = await takeFiles(files);
    if (text) this.write([this.draft.trimEnd(), text, ''].filter((part, at) => part || at > 1).join('\n\n'));
    if (refusals.length > 0) this.toasts.show(refusals.join(' '), undefined, 8000);
  }

  newConversation(): void {
    this.typing.discard();
    void this.unsent.keep();
    if (this.open) this.look(null);
    this.find.close();
    this.open = null;
    this.problem = null;
    this.draftCost.clear();
    this.draftCost.write(this.place, this.draft);
  }

  /** The cost of a system prompt in a conversation that has not begun; null if unknown. */
  async previewSystemPrompt(text: string): Promise<EditCost | null> {
    return await this.backend.previewBeginning(text, '').catch(() => null);
  }

  private get place(): Place {
    return this.open ? { conversation: this.open.id } : { systemPrompt: this.beginning.systemPrompt };
  }

  async openConversation(id: ConversationId, at?: MessageId): Promise<void> {
    const conversation = this.conversations.find((candidate) => candidate.id === id);
    const known = this.chats.get(id);
    if (!known && !conversation) return;
    const chat = known ?? new Chat(this, conversation as Conversation);
    this.chats.set(id, chat);
    if (this.open !== chat) {
      this.typing.discard();
      this.find.close();
    }
    void this.unsent.keep();
    this.open = chat;
    this.problem = null;
    if (this.unread.has(id)) this.unread = without(this.unread, id);
    this.look(id);
    this.draftCost.clear();
    this.draftCost.write(this.place, this.draft);
    if (!chat.streaming) await chat.load();
    if (at) await chat.showMessage(at);
  }

  /** Opens a search hit with its words highlighted. The list returns in place of the results until the search field is focused again. */
  async openHit(hit: SearchHit): Promise<void> {
    const query = this.search.text;
    this.search.setAside();
    await this.openConversation(hit.conversation, hit.message ?? undefined);
    if (hit.message && this.open?.id === hit.conversation) this.find.openHit(query, hit.message);
  }

  /** Sends the draft; on the blank page it first creates the conversation. During a reply, or behind queued messages, it is queued. */
  async send(): Promise<void> {
    const text = this.draft;
    if (this.creating) return;
    if (!text.trim()) return void this.open?.sendNext();
    const chat = this.open ?? (await this.begin());
    if (!chat) return;
    if (chat.streaming || chat.words.queue.length > 0) {
      chat.words.enqueue(text);
      this.typing.sent();
      this.draftCost.clear();
      return void chat.sendNext();
    }
    // What was typed while the conversation was made is the next message.
    chat.words.send(text);
    this.typing.sent();
    this.draftCost.clear();
    await chat.send(text);
    this.noticeModel();
  }

  /** Gives up what was changed in the open edit; for a while it can be taken back. */
  discardEdit(chat: Chat): void {
    const edit = chat.edit;
    chat.discardEdit();
    if (edit?.changed) this.toasts.show('Edit discarded', { label: 'Undo', run: () => chat.startEdit(edit.message, edit.text) });
  }

  async rename(id: ConversationId, title: string): Promise<void> {
    const name = this.whole(title).trim();
    if (!name) return;
    this.patch(id, { title: name });
    try {
      await this.backend.renameConversation(id, name);
    } catch (cause) {
      this.problem = problemOf(cause, false);
      await this.refreshList();
    }
  }

  async remove(id: ConversationId): Promise<void> {
    const title = this.conversations.find((candidate) => candidate.id === id)?.title || 'New conversation';
    const chat = this.chats.get(id);
    const wasOpen = this.open?.id === id;
    if (chat) {
      if (chat.streaming) await chat.stop();
      chat.closeEdit();
      chat.gone = true;
      this.chats.delete(id);
    }
    if (wasOpen) this.newConversation();
    this.conversations = this.conversations.filter((candidate) => candidate.id !== id);
    try {
      await this.backend.deleteConversation(id);
    } catch (cause) {
      this.problem = problemOf(cause, false);
      return await this.refreshList();
    }
    this.toasts.show(`Deleted “${shortName(title)}”`, { label: 'Undo', run: () => void this.undoRemove(id, wasOpen, chat) });
  }

  /** Links never open in the webview: the shell opens them, or the address is copied. */
  async openLink(url: string): Promise<void> {
    try {
      await this.backend.openLink(url);
    } catch {
      await this.export.copy(url, 'Link copied');
    }
  }

  // ---- ChatHost

  touched(): void {
    void this.refreshList();
  }

  modelUsed(name: string): void {
    if (this.models.info?.model !== name) void this.models.refresh();
  }

  isOpen(chat: Chat): boolean {
    return this.open === chat;
  }

  finishedElsewhere(chat: Chat): void {
    if (!chat.gone) this.unread = new Set([...this.unread, chat.id]);
  }

  // ---- inside

  private async begin(): Promise<Chat | null> {
    const { systemPrompt, sampling } = $state.snapshot(this.beginning);
    this.creating = true;
    try {
      const model = this.models.default?.name ?? null;
      const conversation = await this.backend.createConversation(systemPrompt || null, model);
      if (JSON.stringify(sampling) !== JSON.stringify(DEFAULT_SAMPLING)) {
        await this.backend.setSampling(conversation.id, sampling);
        conversation.sampling = sampling;
      }
      const chat = new Chat(this, conversation);
      chat.loaded = true;
      chat.words.draft = this.blank.draft;
      this.blank.draft = '';
      this.chats.set(conversation.id, chat);
      this.conversations = [conversation, ...this.conversations];
      this.beginning = { systemPrompt: '', sampling: DEFAULT_SAMPLING };
      this.open = chat;
      this.look(conversation.id);
      return chat;
    } catch (cause) {
      this.problem = problemOf(cause, false);
      return null;
    } finally {
      this.creating = false;
    }
  }

  private async undoRemove(id: ConversationId, open: boolean, removed: Chat | undefined): Promise<void> {
    try {
      await this.backend.undoDelete(id);
    } catch (cause) {
      this.problem = problemOf(cause, false);
      return;
    }
    await this.refreshList();
    const conversation = this.conversations.find((candidate) => candidate.id === id);
    if (!conversation) return;
    const chat = new Chat(this, conversation, removed?.words);
    this.chats.set(id, chat);
    if (open && !this.open) await this.openConversation(id);
  }

  /** Restoring starts while the user reads or types; a failure only means that nothing was warm. */
  private look(id: ConversationId | null): void {
    void this.backend.openConversation(id).catch(() => undefined).then(() => this.noticeModel());
  }

  /** A model may have been loaded on the way. */
  private noticeModel(): void {
    if (!this.models.loaded || (this.open && this.models.info?.model !== this.model)) void this.models.refresh();
  }

  private patch(id: ConversationId, change: Partial<Conversation>): void {
    this.conversations = this.conversations.map((one) => (one.id === id ? { ...one, ...change } : one));
    const chat = this.chats.get(id);
    if (chat) chat.conversation = { ...chat.conversation, ...change };
  }
}

function without(set: ReadonlySet<string>, id: string): ReadonlySet<string> {
  return new Set([...set].filter((one) => one !== id));
}
