import type { Backend } from '../backend/backend';
import { problemOf, type Problem } from './problem';
import type { AppInfo, MemoryPlan, ModelEntry } from './types';

/** The models the application knows, and the one that is loaded. */
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

  /** Asks what each usable model would take, before it is loaded. */
  async plan(): Promise<void> {
    const usable = this.list.filter((model) => model.usable);
    const ask = async ({ name }: ModelEntry) => [name, await this.backend.planModel(name, null).catch(() => null)] as const;
    const answers = await Promise.all(usable.map(ask));
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
    const trimmed = path.trim().replace(/^["']|["']$/g, '');
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
    return true;
  }
}
