import type { Backend } from '../backend/backend';
import type { CacheStats } from './types';

/** How much room the cache on disk takes. */
export class Cache {
  stats = $state.raw<CacheStats | null>(null);
  clearing = $state(false);

  constructor(private readonly backend: Backend) {}

  async refresh(): Promise<void> {
    this.stats = await this.backend.cacheStats().catch(() => null);
  }

  async clear(): Promise<void> {
    this.clearing = true;
    await this.backend.clearCache().catch(() => undefined);
    await this.refresh();
    this.clearing = false;
  }
}
