export interface Toast {
  id: number;
  text: string;
  action?: { label: string; run: () => void };
}

const AFTER_HELD_MS = 3000;

/** Short notes at the foot of the window. The newest action can be taken with Ctrl+Z. */
export class Toasts {
  list = $state.raw<Toast[]>([]);
  private next = 1;
  private held = false;
  private readonly timers = new Map<number, ReturnType<typeof setTimeout>>();

  show(text: string, action?: Toast['action'], ms = action ? 8000 : 3000): void {
    const id = this.next++;
    this.list = [...this.list.slice(-2), { id, text, action }];
    this.expire(id, ms);
  }

  dismiss(id: number): void {
    clearTimeout(this.timers.get(id));
    this.timers.delete(id);
    this.list = this.list.filter((toast) => toast.id !== id);
    // What was under the pointer is gone, and no pointer leaves it.
    if (this.list.length === 0) this.held = false;
  }

  /** While the pointer or the focus is on them they stay; afterwards there is time to come back. */
  hold(on: boolean): void {
    this.held = on;
    for (const { id } of this.list) {
      clearTimeout(this.timers.get(id));
      if (!on) this.expire(id, AFTER_HELD_MS);
    }
  }

  private expire(id: number, ms: number): void {
    if (!this.held) this.timers.set(id, setTimeout(() => this.dismiss(id), ms));
  }

  act(toast: Toast): void {
    this.dismiss(toast.id);
    toast.action?.run();
  }

  /** Takes the newest offered action; false when there is none. */
  actOnNewest(): boolean {
    const toast = this.list.findLast((candidate) => candidate.action);
    if (!toast) return false;
    this.act(toast);
    return true;
  }
}
