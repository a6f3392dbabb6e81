import type { Backend } from '../backend/backend';
import type { EditCost, Message } from './types';
import type { Typing } from './typing';
import type { Words } from './unsent.svelte';

const PREVIEW_AFTER_MS = 160;
/** Longer texts are counted less often, because each count sends the whole text to the engine. */
const LONG_CHARS = 32_000;
const LONG_PREVIEW_AFTER_MS = 1000;

/** A message being edited: its new text, read ahead as it is written, and what sending it would cost at most. */
export class Edit {
  text = $state('');
  cost = $state.raw<EditCost | null>(null);
  private timer: ReturnType<typeof setTimeout> | undefined;
  private asked = 0;

  constructor(
    private readonly backend: Backend,
    private readonly typing: Typing,
    private readonly words: Words,
    readonly message: Message,
    text = message.text,
  ) {
    this.text = text;
    // One that was given up and is taken back.
    if (this.changed) words.noteEdit(message.id, text);
    void this.preview();
  }

  get changed(): boolean {
    return this.text !== this.message.text;
  }

  write(text: string): void {
    this.text = text;
    this.words.noteEdit(this.message.id, this.changed ? text : '');
    // An edited reply is kept as it is: the model does not read it before the next message.
    if (this.message.role === 'user') this.typing.write(this.message.conversation, this.message.id, text);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.preview(), text.length > LONG_CHARS ? LONG_PREVIEW_AFTER_MS : PREVIEW_AFTER_MS);
  }

  close(): void {
    clearTimeout(this.timer);
    this.typing.leave(this.message.id);
    this.asked += 1;
  }

  private async preview(): Promise<void> {
    const asked = ++this.asked;
    const cost = await this.backend.previewEdit(this.message.conversation, this.message.id, this.text).catch(() => null);
    if (asked === this.asked) this.cost = cost;
  }
}
