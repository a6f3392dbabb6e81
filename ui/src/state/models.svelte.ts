import type { Backend } from '../backend/backend';
import { problemOf, type Problem } from './problem';
import type { AppInfo, Conversation, MemoryPlan, ModelEntry } from './types';

/** The known models, the loaded one, and the default. */
export class Models {
  list = $state.raw<ModelEntry[]>([]);
  info = $state.raw<AppInfo | null>(null);
  known = $state(false);
  loading = $state<string | null>(null);
  problem = $state.raw<Problem | null>(null);
  /** The picker is open. */
  choosing = $state(false);

  /** What each model would take in memory, as far as it was asked. */
  plans = $state.raw<Record<string, MemoryPlan>>({});

  readonly loaded: ModelEntry | null = $derived(this.list.find((model) => model.loaded) ?? null);
  readonly usable: ModelEntry[] = $derived(this.list.filter((model) => model.usable));
  readonly unusable: ModelEntry[] = $derived(this.list.filter((model) => !model.usable));
  /** The model that answers if a conversation has none, or one that cannot be used. */
  readonly default: ModelEntry | null = $derived(this.list.find((model) => model.is_default) ?? null);

  constructor(private readonly backend: Backend) {}

  async refresh(): Promise<void> {
    try {
      const [list, info] = await Promise.all([this.backend.listModels(), this.backend.appInfo()]);
      this.list = list;
      this.info = info;
      this.known = true;
    } catch (cause) {
      this.problem = problemOf(cause, false);
      this.known = true;
    }
  }

  /** Refreshes the list: model files come and go while the window is open. */
  async look(): Promise<void> {
    this.problem = null;
    await this.refresh();
    await this.plan();
  }

  /** The name of the model that answers in a conversation, or in a new one if null. */
  answering(conversation: Conversation | null): string | null {
    return this.keeps(conversation) ? (conversation?.model ?? null) : (this.default?.name ?? null);
  }

  /** Why the model of a conversation cannot answer in it; null if it can. */
  lost(conversation: Conversation): string | null {
    if (!this.known || conversation.model === null || this.keeps(conversation)) return null;
    const there = this.list.find((model) => model.name === conversation.model);
    return there ? (there.problem ?? 'Its file cannot be used.') : 'Its file is gone, or has another name now.';
  }

  /** Whether the model of a conversation can answer in it. A loaded model can even if its file is gone. */
  private keeps(conversation: Conversation | null): boolean {
    const name = conversation?.model ?? null;
    return name !== null && (this.info?.model === name || this.usable.some((model) => model.name === name));
  }

  /** Asks what each usable model would take, before it is loaded. */
  async plan(): Promise<void> {
    const ask = async ({ name }: ModelEntry) => [name, await this.backend.planModel(name, null).catch(() => null)] as const;
    const answers = await Promise.all(this.usable.map(ask));
    this.plans = Object.fromEntries(answers.flatMap(([name, plan]) => (plan ? [[name, plan]] : [])));
  }

  async load(name: string): Promise<boolean> {
    if (this.loading) return false;
    this.problem = null;
    this.loading = name;
    try {
      await this.backend.loadModel(name);
      await this.refresh();
      return true;
    } catch (cause) {
      this.problem = problemOf(cause, false);
      return false;
    } finally {
      this.loading = null;
    }
  }

  /** Asks for a file in the system's dialog and adds it. */
  async choose(): Promise<boolean> {
    const path = await this.backend.chooseModel().catch(() => null);
    return path !== null && (await this.add(path));
  }

  /** Adds a model file by its path and loads it when none is loaded yet. */
  async add(path: string): Promise<boolean> {
    const trimmed = path.trim();
    if (!trimmed) return false;
    this.problem = null;
    let added: ModelEntry;
    try {
      added = await this.backend.addModel(trimmed);
    } catch (cause) {
      this.problem = problemOf(cause, false);
      return false;
    }
    await this.refresh();
    if (!this.loaded) return await this.load(added.name);
    void this.plan();
    return true;
  }

  /** Removes a model: an added one is forgotten, the file of any other is deleted. */
  async remove(model: ModelEntry): Promise<boolean> {
    this.problem = null;
    try {
      await this.backend.removeModel(model.name, !model.added);
    } catch (cause) {
      this.problem = problemOf(cause, false);
      return false;
    }
    await this.refresh();
    return true;
  }
}
