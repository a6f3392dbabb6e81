import type { EditCost } from '../types';
import { FakeCache } from './cache';
import type { FakeModels } from './models';
import type { FakeOptions } from './options';

/** One cache for each model (blocks of one model are useless to another), and the cost of a prompt. */
export class FakeCaches {
  private readonly byModel = new Map<string, FakeCache>();

  constructor(
    private readonly options: FakeOptions,
    private readonly models: FakeModels,
  ) {}

  /** The cache of the loaded model. */
  get current(): FakeCache {
    const model = this.models.loaded ?? '';
    const cache = this.byModel.get(model) ?? new FakeCache();
    this.byModel.set(model, cache);
    return cache;
  }

  numTokens(): number {
    return [...this.byModel.values()].reduce((sum, cache) => sum + cache.numTokens(), 0);
  }

  clear(): void {
    for (const cache of this.byModel.values()) cache.clear();
  }

  /** The cost of a prompt, counted like the engine: up to one token more than the context holds. */
  cost(prompt: number[]): EditCost {
    const limit = this.options.contextTokens;
    const atLeast = prompt.length > limit;
    const of = atLeast ? limit + 1 : prompt.length;
    const { computed } = this.current.match(prompt.slice(0, of));
    return { keeps: of - computed, of, at_least: atLeast, limit, read_ms: Math.round((1000 * computed) / this.options.prefillRate) };
  }
}
