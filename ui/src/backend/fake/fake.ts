import type { Backend, OnTurnEvent } from '../backend';
import type {
  AppInfo, CacheStats, ContextUse, Conversation, ConversationTree, DeviceList, EditCost, ExportFormat, MemoryLimits, MemoryPlan, MemoryStats, ModelEntry,
  PrivacyState, Released, RemovedModel, Sampling, SearchHit, Secret, Shorten, Unsent, View, WhenFull,
} from '../types';
import type { FakeCache } from './cache';
import { FakeCaches } from './caches';
import { FakeHistory } from './history';
import { markdownOf } from './markdown';
import { FakeMemory } from './memory';
import { FakeModels } from './models';
import { parseOptions, type FakeOptions } from './options';
import { FakePrivacy } from './privacy';
import { invalid } from './refusal';
import { longConversation, seedConversations, type Seeded } from './seed';
import { choicesOf, tooLong } from './shorten';
import { encodeMessage, promptOf } from './tokens';
import { FakeTurns } from './turns';

/** The whole application in memory, for the browser and the tests: it streams, branches, counts and fails like the real one. */
export class FakeBackend implements Backend {
  readonly history = new FakeHistory();
  readonly models: FakeModels;
  private readonly caches: FakeCaches;
  private readonly turns: FakeTurns;
  private readonly memory: FakeMemory;
  private readonly privacy: FakePrivacy;
  /** The saved state of the window. */
  private saved: View = { zoom: 1, conversation: null };
  /** Every command called, for the tests. */
  readonly calls: string[] = [];

  constructor(readonly options: FakeOptions, now = Date.now()) {
    this.models = new FakeModels(options);
    this.caches = new FakeCaches(options, this.models);
    this.turns = new FakeTurns(options, this.history, this.models, this.caches);
    this.privacy = new FakePrivacy(options);
    this.memory = new FakeMemory(options.gpu);
    const seeds = [...(options.empty ? [] : seedConversations(now)), ...(options.long ? [longConversation(now, 100_000)] : [])];
    for (const seeded of seeds) {
      this.insert(seeded);
      if (options.goneModel) seeded.conversation.model = 'Mistral-7B-Instruct';
    }
    if (options.locked) return this.privacy.guard(this);
  }

  static fromOptions(text: string): FakeBackend {
    return new FakeBackend(parseOptions(text));
  }

  // ---- conversations

  async listConversations(): Promise<Conversation[]> {
    this.calls.push('list_conversations');
    return this.history.list();
  }

  async createConversation(systemPrompt: string | null, model: string | null): Promise<Conversation> {
    return this.history.create(systemPrompt, model);
  }

  async getConversation(id: string): Promise<ConversationTree> {
    return this.history.tree(id);
  }

  async renameConversation(id: string, title: string): Promise<void> {
    this.history.rename(id, title);
  }

  async deleteConversation(id: string): Promise<void> {
    this.calls.push('delete_conversation');
    this.history.remove(id);
    this.turns.stop(id);
  }

  async undoDelete(id: string): Promise<void> {
    this.history.undoRemove(id);
  }

  async setSystemPrompt(id: string, text: string): Promise<void> {
    this.history.entry(id).conversation.system_prompt = text;
  }

  async setSampling(id: string, sampling: Sampling): Promise<void> {
    this.history.setSampling(id, sampling);
  }

  async setWhenFull(id: string, whenFull: WhenFull): Promise<void> {
    this.history.entry(id).conversation.when_full = whenFull;
  }

  async setConversationModel(id: string, model: string): Promise<void> {
    this.calls.push(`model ${model}`);
    this.models.require(model);
    this.history.entry(id).conversation.model = model;
  }

  async setActiveLeaf(conversation: string, message: string): Promise<void> {
    this.history.setActiveLeaf(conversation, message);
  }

  async unsent(): Promise<Unsent[]> {
    return this.history.unsent();
  }

  async keepUnsent(unsent: Unsent): Promise<void> {
    this.history.keepUnsent(unsent);
  }

  async search(text: string): Promise<SearchHit[]> {
    this.calls.push(`search ${text}`);
    return this.history.search(text);
  }

  // ---- turns

  async sendMessage(conversation: string, parent: string | null, text: string, onEvent: OnTurnEvent): Promise<void> {
    this.turns.send(conversation, parent, text, onEvent);
  }

  async editMessage(conversation: string, message: string, text: string, onEvent: OnTurnEvent): Promise<void> {
    this.turns.edit(conversation, message, text, onEvent);
  }

  async regenerate(conversation: string, message: string, onEvent: OnTurnEvent): Promise<void> {
    this.turns.regenerate(conversation, message, onEvent);
  }

  async continueReply(conversation: string, message: string, onEvent: OnTurnEvent): Promise<void> {
    this.turns.continueReply(conversation, message, onEvent);
  }

  async shorten(conversation: string, how: Shorten, onEvent: OnTurnEvent): Promise<void> {
    this.turns.shorten(conversation, how, onEvent);
  }

  async stop(conversation: string): Promise<void> {
    this.calls.push('stop');
    this.turns.stop(conversation);
  }

  // ---- the model and its cache

  async openConversation(conversation: string | null): Promise<void> {
    this.calls.push(`open ${conversation}`);
    this.saved.conversation = conversation;
    // Loading begins without being awaited, so a missing conversation is no error.
    const entry = conversation && this.history.known(conversation);
    if (entry) this.models.look(entry.conversation.model, true);
  }

  async warm(conversation: string): Promise<void> {
    this.calls.push(`warm ${conversation}`);
    const entry = this.history.known(conversation);
    if (entry) this.models.look(entry.conversation.model, false);
  }

  async draft(conversation: string, message: string | null, text: string): Promise<void> {
    this.calls.push(`draft ${text}`);
    const entry = this.history.known(conversation)?.conversation;
    if (!entry) return;
    const above = message ? this.history.message(conversation, message).parent : entry.active_leaf;
    // What may still change is not read: the last word, the end of the template.
    const whole = text.split(/(?=\s)/).slice(0, -1).join('').trimEnd();
    this.cache.readAhead(whole ? [...this.history.prompt(conversation, above), ...encodeMessage('user', whole).slice(0, -3)] : []);
  }

  async previewEdit(conversation: string, message: string | null, text: string): Promise<EditCost> {
    const { conversation: entry } = this.history.entry(conversation);
    const old = message ? this.history.message(conversation, message) : null;
    this.requireLoaded();
    const prompt = [...this.history.prompt(conversation, old ? old.parent : entry.active_leaf), ...encodeMessage(old?.role ?? 'user', text)];
    return this.caches.cost(prompt);
  }

  async previewSystemPrompt(conversation: string, text: string): Promise<EditCost> {
    this.requireLoaded();
    const branch = this.history.branch(conversation, this.history.entry(conversation).conversation.active_leaf);
    return this.caches.cost(promptOf(text, branch.length ? branch : [{ role: 'user', text: '' }]));
  }

  async previewBeginning(systemPrompt: string, text: string): Promise<EditCost> {
    this.requireLoaded();
    return this.caches.cost(promptOf(systemPrompt, [{ role: 'user', text }]));
  }

  async contextUse(conversation: string): Promise<ContextUse> {
    const { active_leaf, system_prompt } = this.history.entry(conversation).conversation;
    const branch = this.history.branch(conversation, active_leaf);
    this.requireLoaded();
    const limit = this.options.contextTokens;
    const used = branch.length ? this.history.prompt(conversation, active_leaf).length : 0;
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
    return this.memory.stats(this.models.entry(), this.caches.numTokens(), this.turns.anyRunning);
  }

  async releaseMemory(): Promise<Released> {
    const loaded = this.models.entry();
    this.models.loaded = null;
    return { freed_bytes: loaded ? loaded.file_bytes + this.caches.numTokens() * this.memory.perToken() : 0, was_loaded: loaded !== undefined };
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
    return this.privacy.protect(secret, Math.ceil(this.caches.numTokens() / 64));
  }

  async unprotect(): Promise<PrivacyState> {
    return this.privacy.unprotect(Math.ceil(this.caches.numTokens() / 64));
  }

  async changeSecret(current: string | null, secret: Secret): Promise<PrivacyState> {
    return this.privacy.change(current, secret);
  }

  async unlock(passphrase: string): Promise<void> {
    this.privacy.unlock(passphrase);
  }

  async view(): Promise<View> {
    return { ...this.saved };
  }

  async setZoom(zoom: number): Promise<void> {
    if (!(zoom >= 0.5 && zoom <= 3)) throw invalid('text can be half to three times its size');
    this.saved.zoom = zoom;
  }

  async cacheStats(): Promise<CacheStats> {
    const bytes = this.caches.numTokens() * this.memory.perToken();
    return { budget_bytes: 20e9, file_bytes: bytes, live_bytes: bytes, num_blocks: Math.ceil(this.caches.numTokens() / 64), pools: [] };
  }

  async clearCache(): Promise<void> {
    this.caches.clear();
  }

  async exportConversation(id: string, format: ExportFormat): Promise<string> {
    const { conversation, messages } = this.history.entry(id);
    if (format === 'json') return JSON.stringify({ conversation, messages }, null, 2);
    return markdownOf(conversation, this.history.branch(id, conversation.active_leaf));
  }

  async saveConversation(id: string, format: ExportFormat): Promise<string | null> {
    await this.exportConversation(id, format);
    return `/home/you/${this.history.entry(id).conversation.title}.${format === 'json' ? 'json' : 'md'}`;
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

  /** The cache of the loaded model. */
  get cache(): FakeCache {
    return this.caches.current;
  }

  private requireLoaded(): void {
    if (!this.models.loaded) throw { code: 'model_missing', message: 'no model is loaded' };
  }

  private insert(seeded: Seeded): void {
    this.history.insert(seeded);
    this.cache.keepOnDisk(this.history.prompt(seeded.conversation.id, seeded.conversation.active_leaf));
  }
}
