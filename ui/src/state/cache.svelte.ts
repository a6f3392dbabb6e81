import type { Backend } from '../backend/backend';
import { problemOf, type Problem } from './problem';
import type { CacheStats } from './types';

/** How much room the cache on disk takes. */
export class Cache {
  stats = $state.raw<CacheStats | null>(null);
  clearing = $state(false);
  /** The bytes that the last clearing freed. */
  freedBytes = $state<number | null>(null);
  problem = $state.raw<Problem | null>(null);

  constructor(private readonly backend: Backend) {}

  async refresh(): Promise<void> {
    this.problem = null;
    try {
      this.stats = await this.backend.cacheStats();
    } catch (cause) {
      this.problem = problemOf(cause, false);
    }
  }

  async clear(): Promise<void> {
    if (this.clearing) return;
    this.clearing = true;
    this.freedBytes = null;
    const before = this.stats?.live_bytes ?? 0;
    try {
      await this.backend.clearCache();
      await this.refresh();
      if (this.stats && !this.problem) this.freedBytes = Math.max(0, before - this.stats.live_bytes);
    } catch (cause) {
      this.problem = problemOf(cause, false);
    } finally {
      this.clearing = false;
    }
  }
}
