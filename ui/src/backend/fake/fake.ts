import type { Backend, OnTurnEvent } from '../backend';
import type {
  ApiError, AppInfo, CacheStats, ContextUse, Conversation, ConversationTree, DeviceList, EditCost, ExportFormat, MemoryLimits, MemoryPlan, MemoryStats, Message, ModelEntry,
  PrivacyState, Released, RemovedModel, Sampling, SearchHit, Secret, Shorten, TurnEvent, Unsent, View, WhenFull,
} from '../types';
import { FakeCache } from './cache';
import { markdownOf } from './markdown';
import { FakeMemory } from './memory';
import { FakeModels } from './models';
import { parseOptions, type FakeOptions } from './options';
import { FakePrivacy } from './privacy';
import { longConversation, makeConversation, makeMessage, seedConversations, type Seeded } from './seed';
import { choicesOf, tooLong, summarise, turnsToLeave, turnStarts, wantsMore } from './shorten';
import { searchAll } from './search';
import { titleFrom, titleOf } from './title';
import { encodeMessage, promptOf } from './tokens';
import { FakeTurn } from './turn';

/** The whole application in memory, for the browser and the tests: it streams, branches, counts and fails like the real one. */
export class FakeBackend implements Backend {
  /** What each model has read; the blocks of one are of no use to another. */
  private readonly caches = new Map<string, FakeCache>();
  private readonly memory: FakeMemory;
  private readonly privacy: FakePrivacy;
  private readonly store = new Map<string, Seeded & { deleted: boolean }>();
  private readonly turns = new Map<string, { stop(): void }>();
  private written: Unsent[] = [];
  readonly models: FakeModels;
  /** How the window was left. */
  private left: View = { zoom: 1, conversation: null };
  /** Every command called, for the tests. */
  readonly calls: string[] = [];

  constructor(readonly options: FakeOptions, now = Date.now()) {
    this.models = new FakeModels(options);
    this.privacy = new FakePrivacy(options);
    this.memory = new FakeMemory(options.gpu);
    if (!options.empty) for (const seeded of seedConversations(now)) this.insert(seeded);
    if (options.long) this.insert(longConversation(now, 100_000));
    if (options.goneModel) for (const { conversation } of this.store.values()) conversation.model = 'Mistral-7B-Instruct';
    if (options.locked) return this.privacy.guard(this);
  }

  static fromOptions(text: string): FakeBackend {
    return new FakeBackend(parseOptions(text));
  }

  // ---- conversations

  async listConversations(): Promise<Conversation[]> {
    this.calls.push('list_conversations');
    const there = [...this.store.values()].filter((entry) => !entry.deleted).map((entry) => ({ ...entry.conversation }));
    return there.reverse().sort((a, b) => b.updated_at - a.updated_at);
  }

  async createConversation(systemPrompt: string | null, model: string | null): Promise<Conversation> {
    const conversation = makeConversation(crypto.randomUUID(), '', Date.now(), null);
    conversation.system_prompt = systemPrompt ?? '';
    conversation.model = model;
    this.store.set(conversation.id, { conversation, messages: [], deleted: false });
    return { ...conversation };
  }

  async getConversation(id: string): Promise<ConversationTree> {
    const { conversation, messages } = this.entry(id);
    return { conversation: { ...conversation }, messages: messages.map((message) => ({ ...message })) };
  }

  async renameConversation(id: string, title: string): Promise<void> {
    this.entry(id).conversation.title = titleOf(title);
  }

  async deleteConversation(id: string): Promise<void> {
    this.calls.push('delete_conversation');
    const entry = this.entry(id);
    this.turns.get(id)?.stop();
    entry.deleted = true;
  }

  async undoDelete(id: string): Promise<void> {
    const entry = this.store.get(id);
    if (!entry) throw { code: 'conversation_missing', message: `no conversation ${id}` };
    entry.deleted = false;
  }

  async setSystemPrompt(id: string, text: string): Promise<void> {
    this.entry(id).conversation.system_prompt = text;
  }

  async setSampling(id: string, sampling: Sampling): Promise<void> {
    const { conversation } = this.entry(id);
    refuseNonsense(sampling);
    conversation.sampling = { ...sampling };
  }

  async setWhenFull(id: string, whenFull: WhenFull): Promise<void> {
    this.entry(id).conversation.when_full = whenFull;
  }

  async setConversationModel(id: string, model: string): Promise<void> {
    this.calls.push(`model ${model}`);
    this.models.require(model);
    this.entry(id).conversation.model = model;
  }

  async setActiveLeaf(conversation: string, message: string): Promise<void> {
    this.message(conversation, message);
    this.entry(conversation).conversation.active_leaf = message;
  }

  async unsent(): Promise<Unsent[]> {
    return this.written.filter(({ conversation }) => !conversation || !this.store.get(conversation)?.deleted);
  }

  async keepUnsent(unsent: Unsent): Promise<void> {
    const { conversation, message, text } = unsent;
    const entry = conversation === null ? null : this.store.get(conversation);
    if (entry === undefined) throw { code: 'conversation_missing', message: `no conversation ${conversation}` };
    if (message !== null && !entry?.messages.some((one) => one.id === message)) throw { code: 'message_missing', message: `no message ${message}` };
    this.written = this.written.filter((one) => one.conversation !== conversation || one.message !== message);
    if (text) this.written.push(unsent);
  }

  async search(text: string): Promise<SearchHit[]> {
    this.calls.push(`search ${text}`);
    return searchAll(text, [...this.store.values()].filter((entry) => !entry.deleted));
  }

  // ---- turns

  async sendMessage(conversation: string, parent: string | null, text: string, onEvent: OnTurnEvent): Promise<void> {
    this.begin(conversation, onEvent, () => {
      const { conversation: entry } = this.entry(conversation);
      const above = parent === null ? entry.active_leaf : this.message(conversation, parent).id;
      const user = this.unanswered(conversation, above, text) ?? this.append(conversation, above, 'user', text);
      entry.title ||= titleFrom(text);
      this.generate(conversation, user, null, onEvent, user);
    });
  }

  async editMessage(conversation: string, message: string, text: string, onEvent: OnTurnEvent): Promise<void> {
    this.begin(conversation, onEvent, () => {
      const old = this.message(conversation, message);
      const copy = this.append(conversation, old.parent, old.role as 'user' | 'assistant', text);
      copy.edited_from = old.id;
      if (old.role === 'user') return this.generate(conversation, copy, null, onEvent, copy);
      onEvent({ event: 'started', user: null, reply: { ...copy } });
      onEvent(storedEvent(copy));
    });
  }

  async regenerate(conversation: string, message: string, onEvent: OnTurnEvent): Promise<void> {
    this.begin(conversation, onEvent, () => {
      const old = this.message(conversation, message);
      const user = old.role === 'user' ? old : this.message(conversation, old.parent ?? '');
      this.generate(conversation, user, null, onEvent, null);
    });
  }

  async continueReply(conversation: string, message: string, onEvent: OnTurnEvent): Promise<void> {
    this.begin(conversation, onEvent, () => {
      const reply = this.message(conversation, message);
      if (reply.role !== 'assistant' || reply.state === 'complete' || reply.state === 'generating') throw invalid('only a reply that was cut off can go on');
      this.generate(conversation, this.message(conversation, reply.parent ?? ''), reply, onEvent, null);
    });
  }

  async shorten(conversation: string, how: Shorten, onEvent: OnTurnEvent): Promise<void> {
    this.begin(conversation, onEvent, () => {
      const leaf = this.entry(conversation).conversation.active_leaf;
      this.loadFor(conversation, null, onEvent);
      turnsToLeave(this.branch(conversation, leaf), how, this.options.contextTokens);
      void this.goOnShorter(conversation, leaf, how, onEvent);
    });
  }

  async stop(conversation: string): Promise<void> {
    this.calls.push('stop');
    this.turns.get(conversation)?.stop();
  }

  // ---- the model and its cache

  async openConversation(conversation: string | null): Promise<void> {
    this.calls.push(`open ${conversation}`);
    this.left.conversation = conversation;
    // Begun, and not waited for: one that is not there is no error.
    const entry = conversation && this.known(conversation);
    if (entry) this.models.look(entry.conversation.model, true);
  }

  async warm(conversation: string): Promise<void> {
    this.calls.push(`warm ${conversation}`);
    const entry = this.known(conversation);
    if (entry) this.models.look(entry.conversation.model, false);
  }

  async draft(conversation: string, message: string | null, text: string): Promise<void> {
    this.calls.push(`draft ${text}`);
    const entry = this.known(conversation)?.conversation;
    if (!entry) return;
    const above = message ? this.message(conversation, message).parent : entry.active_leaf;
    // What may still change is not read: the last word, the end of the template.
    const whole = text.split(/(?=\s)/).slice(0, -1).join('').trimEnd();
    this.cache.readAhead(whole ? [...this.prompt(conversation, above), ...encodeMessage('user', whole).slice(0, -3)] : []);
  }

  async previewEdit(conversation: string, message: string | null, text: string): Promise<EditCost> {
    const { conversation: entry } = this.entry(conversation);
    const old = message ? this.message(conversation, message) : null;
    this.loadedModel();
    const prompt = [...this.prompt(conversation, old ? old.parent : entry.active_leaf), ...encodeMessage(old?.role ?? 'user', text)];
    return this.cost(prompt);
  }

  async previewSystemPrompt(conversation: string, text: string): Promise<EditCost> {
    this.loadedModel();
    const branch = this.branch(conversation, this.entry(conversation).conversation.active_leaf);
    return this.cost(promptOf(text, branch.length ? branch : [{ role: 'user', text: '' }]));
  }

  async previewBeginning(systemPrompt: string, text: string): Promise<EditCost> {
    this.loadedModel();
    return this.cost(promptOf(systemPrompt, [{ role: 'user', text }]));
  }

  /** As the engine counts: no further than there is room. */
  private cost(prompt: number[]): EditCost {
    const limit = this.options.contextTokens;
    const atLeast = prompt.length > limit;
    const of = atLeast ? limit + 1 : prompt.length;
    const { computed } = this.cache.match(prompt.slice(0, of));
    return { keeps: of - computed, of, at_least: atLeast, limit, read_ms: Math.round((1000 * computed) / this.options.prefillRate) };
  }

  async contextUse(conversation: string): Promise<ContextUse> {
    const { active_leaf, system_prompt } = this.entry(conversation).conversation;
    const branch = this.branch(conversation, active_leaf);
    this.loadedModel();
    const limit = this.options.contextTokens;
    const used = branch.length ? this.prompt(conversation, active_leaf).length : 0;
    const isFull = used + 1 > limit;
    const choices = choicesOf(branch, isFull ? tooLong(system_prompt, branch, limit) : null, isFull ? { contextTokens: limit } : null);
    return { used: Math.min(used, limit + 1), at_least: used > limit, limit, choices };
  }

  async raiseContext(): Promise<void> {
    throw { code: 'invalid_argument', message: 'the model that is loaded can hold no more' };
  }

  async listModels(): Promise<ModelEntry[]> {
    this.calls.push('list_models');
    return this.models.list();
  }

  async addModel(path: string): Promise<ModelEntry> {
    return this.models.add(path);
  }

  async removeModel(name: string, deleteFile: boolean): Promise<RemovedModel> {
    return this.models.remove(name, deleteFile);
  }

  async chooseModel(): Promise<string | null> {
    return '/models/Llama-3.2-1B-Instruct.Q4_K_M.gguf';
  }

  async loadModel(name: string): Promise<void> {
    this.models.require(name);
    await new Promise((resolve) => setTimeout(resolve, 300));
    this.models.load(name);
    this.models.choose(name);
  }

  async planModel(name: string, context: number | null): Promise<MemoryPlan> {
    this.models.require(name);
    return this.memory.plan(this.models.find(name), context ?? this.options.contextTokens);
  }

  async devices(): Promise<DeviceList> {
    return this.memory.devices();
  }

  async memoryStats(): Promise<MemoryStats> {
    this.calls.push('memory_stats');
    return this.memory.stats(this.models.entry(), this.cachedTokens(), this.turns.size > 0);
  }

  async releaseMemory(): Promise<Released> {
    const loaded = this.models.entry();
    this.models.loaded = null;
    return { freed_bytes: loaded ? loaded.file_bytes + this.cachedTokens() * this.memory.perToken() : 0, was_loaded: loaded !== undefined };
  }

  async memoryLimits(): Promise<MemoryLimits> {
    return { ...this.memory.limits };
  }

  async setMemoryLimits(limits: MemoryLimits): Promise<void> {
    this.memory.check(limits);
    if (limits.kv !== this.memory.limits.kv || limits.device !== this.memory.limits.device) {
      // Another format or device knows nothing of what was read in this one.
      await this.clearCache();
      await this.releaseMemory();
    }
    this.memory.limits = { ...limits };
  }

  async reserveContext(model: string, wholeContext: boolean): Promise<void> {
    const changed = this.memory.reserving.has(model) !== wholeContext;
    if (wholeContext) this.memory.reserving.add(model);
    else this.memory.reserving.delete(model);
    if (!changed || this.models.loaded !== model) return;
    await this.releaseMemory();
    await this.loadModel(model);
  }

  async privacyState(): Promise<PrivacyState> {
    return this.privacy.state();
  }

  async protect(secret: Secret): Promise<PrivacyState> {
    return this.privacy.protect(secret, Math.ceil(this.cachedTokens() / 64));
  }

  async unprotect(): Promise<PrivacyState> {
    return this.privacy.unprotect(Math.ceil(this.cachedTokens() / 64));
  }

  async changeSecret(current: string | null, secret: Secret): Promise<PrivacyState> {
    return this.privacy.change(current, secret);
  }

  async unlock(passphrase: string): Promise<void> {
    this.privacy.unlock(passphrase);
  }

  async view(): Promise<View> {
    return { ...this.left };
  }

  async setZoom(zoom: number): Promise<void> {
    if (!(zoom >= 0.5 && zoom <= 3)) throw invalid('text can be half to three times its size');
    this.left.zoom = zoom;
  }

  async cacheStats(): Promise<CacheStats> {
    const bytes = this.cachedTokens() * this.memory.perToken();
    return { budget_bytes: 20e9, file_bytes: bytes, live_bytes: bytes, num_blocks: Math.ceil(this.cachedTokens() / 64), pools: [] };
  }

  async clearCache(): Promise<void> {
    for (const cache of this.caches.values()) cache.clear();
  }

  async exportConversation(id: string, format: ExportFormat): Promise<string> {
    const { conversation, messages } = this.entry(id);
    if (format === 'json') return JSON.stringify({ conversation, messages }, null, 2);
    return markdownOf(conversation, this.branch(id, conversation.active_leaf));
  }

  async saveConversation(id: string, format: ExportFormat): Promise<string | null> {
    await this.exportConversation(id, format);
    return `/home/you/${this.entry(id).conversation.title}.${format === 'json' ? 'json' : 'md'}`;
  }

  async appInfo(): Promise<AppInfo> {
    return { version: '0.1.0', device: 'CPU, 8 threads', data_dir: '/home/you/.local/share/reprise', model: this.models.loaded };
  }

  async openLink(): Promise<void> {
    throw { code: 'invalid_argument', message: 'the browser build opens no links' };
  }

  async pageDrawn(): Promise<void> {
    this.calls.push('page_drawn');
  }

  // ---- inside

  /** What the model in memory has read. */
  get cache(): FakeCache {
    const model = this.models.loaded ?? '';
    const cache = this.caches.get(model) ?? new FakeCache();
    this.caches.set(model, cache);
    return cache;
  }

  private cachedTokens(): number {
    return [...this.caches.values()].reduce((sum, cache) => sum + cache.numTokens(), 0);
  }

  /** The tokens of the branch that ends at `leaf`. */
  private prompt(conversation: string, leaf: string | null): number[] {
    const { conversation: entry } = this.entry(conversation);
    return promptOf(entry.system_prompt, this.branch(conversation, leaf));
  }

  private branch(conversation: string, leaf: string | null): Message[] {
    const byId = new Map(this.entry(conversation).messages.map((message) => [message.id, message]));
    const path: Message[] = [];
    for (let at = leaf ? byId.get(leaf) : undefined; at; at = at.parent ? byId.get(at.parent) : undefined) path.push(at);
    return path.reverse();
  }

  /** A shorter branch beside the full one, then what waits for the model in it. */
  private async goOnShorter(conversation: string, from: string | null, how: Shorten, onEvent: OnTurnEvent): Promise<void> {
    const branch = this.branch(conversation, from);
    const turns = turnsToLeave(branch, how, this.options.contextTokens);
    const first = turnStarts(branch)[turns] ?? branch.length;
    let stopped = false;
    this.turns.set(conversation, { stop: () => (stopped = true) });
    onEvent({ event: 'shortening', how, turns, left_out: 0 });
    const summary = how === 'compact' ? await summarise(branch.slice(0, first), this.options.decodeRate, () => stopped, onEvent) : null;
    this.turns.delete(conversation);
    if (how === 'compact' && summary === null) return onEvent({ event: 'error', code: 'stopped', message: 'stopped before anything was changed' });
    const messages: Message[] = [];
    const add = (message: Message) => {
      this.entry(conversation).messages.push(message);
      messages.push(message);
    };
    if (summary !== null) add({ ...makeMessage(conversation, null, 'user', summary, Date.now()), kind: 'summary', model: this.models.loaded });
    for (const message of branch.slice(first)) add({ ...message, id: crypto.randomUUID(), parent: messages.at(-1)?.id ?? null, edited_from: message.id });
    const leaf = messages[messages.length - 1];
    Object.assign(this.entry(conversation).conversation, { active_leaf: leaf.id, updated_at: Date.now() });
    onEvent({ event: 'shortened', how, messages: messages.map((message) => ({ ...message })), turns, left_out: 0 });
    if (!wantsMore(leaf)) return onEvent(storedEvent(leaf));
    if (leaf.role === 'user') this.generate(conversation, leaf, null, onEvent, null, true);
    else this.generate(conversation, this.message(conversation, leaf.parent ?? ''), leaf, onEvent, null, true);
  }

  private generate(conversation: string, user: Message, going: Message | null, onEvent: OnTurnEvent, stored: Message | null, shorter = false): void {
    let model: string;
    try {
      model = this.loadFor(conversation, stored, onEvent);
    } catch (missing) {
      return onEvent(refusalOf(missing));
    }
    // As the engine does: half a character at the end of what an earlier version stored is not shown.
    if (going) going.text = going.text.replace(/\ufffd+$/u, '');
    const prompt = [...this.prompt(conversation, user.id), ...(going ? encodeMessage('assistant', going.text).slice(0, -2) : encodeMessage('assistant', '').slice(0, 2))];
    if ((this.options.contextFull && !shorter) || prompt.length >= this.options.contextTokens) {
      const { when_full: when, system_prompt } = this.entry(conversation).conversation;
      const branch = this.branch(conversation, going?.id ?? user.id);
      const limit_tokens = this.options.contextTokens;
      const too_long = tooLong(system_prompt, branch, limit_tokens);
      const choices = choicesOf(branch, too_long, this.options.contextFull ? null : { contextTokens: limit_tokens });
      if ((when === 'compact' || when === 'drop_oldest') && choices.includes(when)) return void this.goOnShorter(conversation, going?.id ?? user.id, when, onEvent);
      // Counting ends when it is clear.
      const at_least = prompt.length > limit_tokens;
      const needed_tokens = this.options.contextFull ? limit_tokens + 1 : Math.min(prompt.length, limit_tokens + 1) + 1;
      return onEvent({ event: 'context_full', message: user.id, needed_tokens, at_least, too_long, limit_tokens, choices: when === 'stop' ? [] : choices });
    }
    const reply = going ?? this.append(conversation, user.id, 'assistant', '');
    Object.assign(reply, { state: 'generating', model });
    const { messages, conversation: { sampling } } = this.entry(conversation);
    // The likeliest reply is always the same one.
    const number = sampling.temperature === 0 ? this.branch(conversation, user.id).length : messages.length;
    const turn = new FakeTurn(this.options, this.cache, { question: user.text, reply, prompt, number, sampling });
    this.turns.set(conversation, turn);
    void turn.run((event) => {
      // Who is told that a turn has ended may begin the next.
      if (event.event === 'finished' || event.event === 'error') this.turns.delete(conversation);
      onEvent(event);
    });
  }

  /** Begins a turn. What refuses it is its only event, as in the shell. */
  private begin(conversation: string, onEvent: OnTurnEvent, work: () => void): void {
    try {
      if (this.options.errorCode) throw { code: this.options.errorCode, message: `refused with ${this.options.errorCode}` };
      this.entry(conversation);
      if (this.turns.has(conversation)) throw { code: 'busy', message: 'a reply is being written' };
      work();
    } catch (refusal) {
      onEvent(refusalOf(refusal));
    }
  }

  private loadedModel(): void {
    if (!this.models.loaded) throw { code: 'model_missing', message: 'no model is loaded' };
  }

  /** The words are stored before a model is looked for. The conversation is the model's that answers in it, and another one is told. */
  private loadFor(id: string, stored: Message | null, onEvent: OnTurnEvent): string {
    if (stored) onEvent({ event: 'started', user: { ...stored }, reply: null });
    const { conversation } = this.entry(id);
    const fallback = this.models.answer(conversation.model);
    const model = this.models.loaded as string;
    conversation.model = model;
    if (fallback) onEvent(fallback);
    return model;
  }

  /** The message itself, if it has these words and waits for its reply: they are not stored twice. */
  private unanswered(conversation: string, id: string | null, text: string): Message | null {
    const { messages } = this.entry(conversation);
    const found = messages.find((one) => one.id === id && one.role === 'user' && one.text === text);
    return found && !messages.some((one) => one.parent === id) ? found : null;
  }

  private append(conversation: string, parent: string | null, role: 'user' | 'assistant', text: string): Message {
    const entry = this.entry(conversation);
    if (role === 'user' && !text.trim()) throw invalid('the message is empty; write something first');
    const message = makeMessage(conversation, parent, role, text, Date.now());
    entry.messages.push(message);
    this.written = this.written.filter((one) => one.conversation !== conversation || one.text !== text);
    entry.conversation.active_leaf = message.id;
    entry.conversation.updated_at = Date.now();
    return message;
  }

  private insert(seeded: Seeded): void {
    this.store.set(seeded.conversation.id, { ...seeded, deleted: false });
    this.cache.keepOnDisk(this.prompt(seeded.conversation.id, seeded.conversation.active_leaf));
  }

  private known(id: string): (Seeded & { deleted: boolean }) | null {
    const entry = this.store.get(id);
    return entry && !entry.deleted ? entry : null;
  }

  private entry(id: string): Seeded & { deleted: boolean } {
    const entry = this.known(id);
    if (!entry) throw { code: 'conversation_missing', message: `no conversation ${id}` };
    return entry;
  }

  private message(conversation: string, id: string): Message {
    const message = this.entry(conversation).messages.find((candidate) => candidate.id === id);
    if (!message) throw { code: 'message_missing', message: `no message ${id}` };
    return message;
  }
}

/** As the engine ends a turn in which no model ran. */
function storedEvent(message: Message): TurnEvent {
  const prefill = { resident: 0, restored: 0, computed: 0 };
  return { event: 'finished', message: message.id, model: message.model, text: message.text, state: message.state, prefill, prompt_tokens: 0, completion_tokens: 0, ttft_ms: 0, tokens_per_s: 0, restore_ms: 0 };
}

function invalid(message: string): ApiError {
  return { code: 'invalid_argument', message };
}

function refusalOf(cause: unknown): TurnEvent {
  const { code, message } = cause as ApiError;
  return { event: 'error', code, message };
}

/** The shell takes whole numbers where tokens are counted. */
function refuseNonsense({ top_k, max_tokens, seed }: Sampling): void {
  const wrong = [top_k, max_tokens, seed].find((value) => value !== null && (!Number.isInteger(value) || value < 0));
  if (wrong !== undefined) throw invalid(`${wrong} is no number of tokens`);
}
