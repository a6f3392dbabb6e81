import type { Backend } from '../backend/backend';
import type { ConversationId, EditCost, Message } from './types';

const PREVIEW_AFTER_MS = 160;

/** A message being edited: its new text, and what sending it would cost. */
export class Edit {
  text = $state('');
  cost = $state.raw<EditCost | null>(null);
  private timer: ReturnType<typeof setTimeout> | undefined;
  private asked = 0;

  constructor(
    private readonly backend: Backend,
    private readonly conversation: ConversationId,
    readonly message: Message,
  ) {
    this.text = message.text;
    void this.preview();
  }

  get changed(): boolean {
    return this.text !== this.message.text;
  }

  write(text: string): void {
    this.text = text;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.preview(), PREVIEW_AFTER_MS);
  }

  close(): void {
    clearTimeout(this.timer);
    this.asked += 1;
  }

  private async preview(): Promise<void> {
    const asked = ++this.asked;
    const cost = await this.backend.previewEdit(this.conversation, this.message.id, this.text).catch(() => null);
    if (asked === this.asked) this.cost = cost;
  }
}
