export interface Toast {
  id: number;
  text: string;
  action?: { label: string; run: () => void };
}

/** Short notes at the foot of the window. The newest action can be taken with Ctrl+Z. */
export class Toasts {
  list = $state.raw<Toast[]>([]);
  private next = 1;
  private readonly timers = new Map<number, ReturnType<typeof setTimeout>>();

  show(text: string, action?: Toast['action'], ms = action ? 8000 : 3000): void {
    const id = this.next++;
    this.list = [...this.list.slice(-2), { id, text, action }];
    this.timers.set(id, setTimeout(() => this.dismiss(id), ms));
  }

  dismiss(id: number): void {
    clearTimeout(this.timers.get(id));
    this.timers.delete(id);
    this.list = this.list.filter((toast) => toast.id !== id);
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
