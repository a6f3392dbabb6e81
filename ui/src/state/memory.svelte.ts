import type { Backend } from '../backend/backend';
import { problemOf, type Problem } from './problem';
import type { DeviceList, MemoryLimits, MemoryStats, TierUse } from './types';

/** Between two looks at the memory, in milliseconds. */
const INTERVAL = 2000;

/** One part of the memory by its use. */
export interface Use {
  name: string;
  bytes: number;
  /** The style of the part: tokens by their warmth, everything else in greys. */
  tone: 'warm' | 'mild' | 'aside' | 'weights' | 'scratch' | 'own' | 'others' | 'free';
}

/** What memory is used for, seen live while somebody looks, and the limits set for it. */
export class Memory {
  stats = $state.raw<MemoryStats | null>(null);
  limits = $state.raw<MemoryLimits | null>(null);
  /** The GPUs of the machine, and why there is none. */
  devices = $state.raw<DeviceList | null>(null);
  /** Bytes given back by the last release; null before one. */
  freed = $state<number | null>(null);
  releasing = $state(false);
  problem = $state.raw<Problem | null>(null);

  readonly uses: Use[] = $derived(this.stats ? usesOf(this.stats) : []);
  readonly places: Place[] = $derived(this.stats ? placesOf(this.stats) : []);

  constructor(
    private readonly backend: Backend,
    private readonly released: () => void,
  ) {}

  /** Looks now and then again and again, until the returned function is called. Never asks twice at a time. */
  watch(): () => void {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let ended = false;
    const look = async () => {
      if (!document.hidden) await this.refresh();
      if (!ended) timer = setTimeout(look, INTERVAL);
    };
    void look();
    void this.readLimits();
    void this.readDevices();
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }

  async refresh(): Promise<void> {
    const before = this.stats?.model;
    this.stats = await this.backend.memoryStats().catch(() => this.stats);
    // It was given back without our doing: for being idle, or from the command line.
    if (before && this.stats && !this.stats.model) this.released();
  }

  /** Gives memory back; a reply that is being written ends first. */
  async release(): Promise<void> {
    this.releasing = true;
    this.problem = null;
    try {
      this.freed = (await this.backend.releaseMemory()).freed_bytes;
      this.released();
      await this.refresh();
    } catch (cause) {
      this.problem = problemOf(cause, false);
    } finally {
      this.releasing = false;
    }
  }

  async setLimits(change: Partial<MemoryLimits>): Promise<void> {
    if (!this.limits) return;
    this.problem = null;
    try {
      await this.backend.setMemoryLimits({ ...this.limits, ...change });
    } catch (cause) {
      this.problem = problemOf(cause, false);
    }
    await this.readLimits();
    await this.refresh();
  }

  /** Whether the model in memory takes its whole context at once; it comes again as decided, or says what it needs. */
  async reserve(wholeContext: boolean): Promise<void> {
    const model = this.stats?.model;
    if (!model) return;
    this.problem = null;
    try {
      await this.backend.reserveContext(model, wholeContext);
    } catch (cause) {
      this.problem = problemOf(cause, false);
    }
    await this.refresh();
  }

  /** Once: a machine has its GPUs for as long as it runs. */
  private async readDevices(): Promise<void> {
    this.devices ??= await this.backend.devices().catch(() => null);
  }

  private async readLimits(): Promise<void> {
    this.limits = await this.backend.memoryLimits().catch(() => this.limits);
  }
}

/** Whether weights and working pool are in a GPU's memory alone. */
export function isOnGpu(stats: MemoryStats): boolean {
  return stats.device.name !== null && stats.device.num_layers === null;
}

/** All of the memory that the working pool is in, where it is known. */
export function totalBytes(stats: MemoryStats): number | null {
  return !isOnGpu(stats) ? (stats.machine?.total_bytes ?? null) : stats.device.total_bytes;
}

/** What other programs hold of it. */
function othersBytes(stats: MemoryStats): number | null {
  if (!isOnGpu(stats)) return stats.others_bytes;
  const own = stats.weights_bytes + stats.scratch_bytes + stats.pool.reserved_bytes;
  return Math.max(0, stats.device.total_bytes - stats.device.free_bytes - own);
}

/** A place where conversations are kept, as a line. */
export interface Place {
  name: string;
  tier: TierUse;
  /** How warm what lies there is. */
  warmth: 'warm' | 'mild' | 'cool';
}

/** Where conversations are kept, the nearest to the model first. */
function placesOf(stats: MemoryStats): Place[] {
  const disk: Place = { name: 'On disk', tier: stats.disk, warmth: 'cool' };
  if (!stats.model) return [disk];
  const pool: Place = { name: isOnGpu(stats) ? 'In the GPU’s memory' : 'In memory', tier: stats.pool, warmth: 'warm' };
  const host: Place = { name: 'In memory beside it', tier: stats.host, warmth: 'mild' };
  return stats.host.budget_bytes > 0 ? [pool, host, disk] : [pool, disk];
}

/** The parts by use, the warmest first, without those that do not apply. They add up to the total if it is known. */
function usesOf(stats: MemoryStats): Use[] {
  const { pool } = stats;
  const uses: Use[] = [];
  if (stats.model) {
    uses.push({ name: 'In use by a reply', bytes: pool.active_bytes, tone: 'warm' });
    uses.push({ name: 'Kept warm', bytes: pool.cached_bytes, tone: 'mild' });
    const aside = pool.reserved_bytes - pool.active_bytes - pool.cached_bytes;
    if (aside > 0) uses.push({ name: 'Set aside for conversations', bytes: aside, tone: 'aside' });
    uses.push({ name: 'Weights', bytes: stats.weights_bytes, tone: 'weights' });
    uses.push({ name: 'Scratch', bytes: stats.scratch_bytes, tone: 'scratch' });
  }
  return [...uses, ...restOf(stats, uses.reduce((sum, use) => sum + use.bytes, 0))];
}

/** The parts beside the `taken` bytes: the program itself, other programs, free memory. */
function restOf(stats: MemoryStats, taken: number): Use[] {
  const total = totalBytes(stats);
  const others = othersBytes(stats);
  if (total === null || others === null) return others === null ? [] : [{ name: 'Other programs', bytes: others, tone: 'others' }];
  // The figures are measured at different moments: if they exceed the total, other programs get the remainder.
  const othersPart = Math.min(others, Math.max(0, total - taken));
  const left = Math.max(0, total - taken - othersPart);
  const free = Math.min(left, isOnGpu(stats) ? stats.device.free_bytes : (stats.machine?.available_bytes ?? left));
  const uses: Use[] = [];
  if (left > free) uses.push({ name: 'Reprise itself', bytes: left - free, tone: 'own' });
  uses.push({ name: 'Other programs', bytes: othersPart, tone: 'others' }, { name: 'Free', bytes: free, tone: 'free' });
  return uses;
}
