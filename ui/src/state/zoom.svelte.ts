import type { Backend } from '../backend/backend';

/** The zoom steps of common browsers. */
const STEPS = [0.5, 0.67, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 1.75, 2, 2.5, 3] as const;

/** The zoom factor of the window. */
export class Zoom {
  factor = $state(1);

  constructor(private readonly backend: Backend) {}

  get percent(): string {
    return `${Math.round(this.factor * 100)}\u202f%`;
  }

  get atLeast(): boolean {
    return this.factor <= STEPS[0];
  }

  get atMost(): boolean {
    return this.factor >= STEPS[STEPS.length - 1];
  }

  larger(): void {
    void this.set(STEPS.find((step) => step > this.factor) ?? this.factor);
  }

  smaller(): void {
    void this.set(STEPS.findLast((step) => step < this.factor) ?? this.factor);
  }

  reset(): void {
    void this.set(1);
  }

  /** Stays at the old factor if the shell refuses the new one. */
  async set(factor: number): Promise<void> {
    if (factor === this.factor) return;
    const before = this.factor;
    this.factor = factor;
    await this.backend.setZoom(factor).catch(() => (this.factor = before));
  }
}
