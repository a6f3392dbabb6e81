import type { Backend } from '../backend/backend';
import type { ConversationId } from './types';

const HOVER_MS = 150;

/** Brings a conversation's blocks into memory while the pointer or the focus rests on it, before it is opened. */
export class Warming {
  private timer: ReturnType<typeof setTimeout> | undefined;
  private resting: ConversationId | null = null;

  constructor(private readonly backend: Backend) {}

  rest(id: ConversationId): void {
    if (this.resting === id) return;
    clearTimeout(this.timer);
    this.resting = id;
    // A failure only means that nothing is warm.
    this.timer = setTimeout(() => void this.backend.warm(id).catch(() => undefined), HOVER_MS);
  }

  leave(id: ConversationId): void {
    if (this.resting !== id) return;
    clearTimeout(this.timer);
    this.resting = null;
  }
}
