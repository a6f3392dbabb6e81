import type { Prefill } from '../types';
import { commonPrefix } from './tokens';

/** What the model has read: whole timelines, some in memory, all on disk. Counts follow from longest common prefixes alone. */
export class FakeCache {
  private resident: number[][] = [];
  private disk: number[][] = [];
  /** What has been read of a message that is being typed; known to nobody until it is sent. */
  private draft: number[] = [];

  /** How a prompt would be made ready. At most all but one of its tokens are reused, since something must produce logits. */
  match(prompt: readonly number[]): Prefill {
    const most = Math.max(prompt.length - 1, 0);
    const resident = Math.min(longest([...this.resident, this.draft], prompt), most);
    const known = Math.max(Math.min(longest(this.disk, prompt), most), resident);
    return { resident, restored: known - resident, computed: prompt.length - known };
  }

  /** The model has seen this timeline. */
  keep(timeline: number[]): void {
    this.resident = add(this.resident, timeline);
    this.disk = add(this.disk, timeline);
  }

  readAhead(tokens: number[]): void {
    this.draft = tokens;
  }

  /** As after a restart: nothing in memory. */
  keepOnDisk(timeline: number[]): void {
    this.disk = add(this.disk, timeline);
  }

  clear(): void {
    this.resident = [];
    this.disk = [];
    this.draft = [];
  }

  numTokens(): number {
    return this.disk.reduce((sum, timeline) => sum + timeline.length, 0);
  }
}

function longest(timelines: readonly number[][], prompt: readonly number[]): number {
  return timelines.reduce((most, timeline) => Math.max(most, commonPrefix(timeline, prompt)), 0);
}

function add(timelines: number[][], added: number[]): number[][] {
  return [...timelines.filter((timeline) => commonPrefix(timeline, added) < timeline.length), added];
}
