import type { Backend } from '../backend/backend';
import { count, roughly } from './format';
import type { ConversationId, EditCost } from './types';

/** Shorter texts always fit and take no noticeable time to read. */
const MATTERS_CHARS = 1000;
const QUIET_MS = 400;
/** Longer texts are counted less often, because each count sends the whole text to the engine. */
const LONG_CHARS = 32_000;
const LONG_QUIET_MS = 1000;

/** The place of a draft: a conversation, or the system prompt of a new one. */
export type Place = { conversation: ConversationId } | { systemPrompt: string };

/** The cost of sending the draft, once it is long enough to matter. */
export class DraftCost {
  cost = $state.raw<EditCost | null>(null);
  private timer: ReturnType<typeof setTimeout> | undefined;
  private asked = 0;

  constructor(private readonly backend: Backend) {}

  /** Records the current draft. */
  write(place: Place, text: string): void {
    clearTimeout(this.timer);
    if (text.length < MATTERS_CHARS) return this.clear();
    // Asks when typing pauses: every key restarts the timer.
    this.timer = setTimeout(() => void this.ask(place, text), text.length > LONG_CHARS ? LONG_QUIET_MS : QUIET_MS);
  }

  clear(): void {
    clearTimeout(this.timer);
    this.asked += 1;
    this.cost = null;
  }

  private async ask(place: Place, text: string): Promise<void> {
    const asked = ++this.asked;
    const { backend } = this;
    const asking = 'conversation' in place ? backend.previewEdit(place.conversation, null, text) : backend.previewBeginning(place.systemPrompt, text);
    // Without a model the cost is unknown.
    const cost = await asking.catch(() => null);
    if (asked === this.asked) this.cost = cost;
  }
}

/** Whether the prompt and one token of the reply fit into the context. */
export function fits(cost: EditCost): boolean {
  return !cost.at_least && cost.of < cost.limit;
}

/** `16 400 tokens to read, about 38 s`, or that the text does not fit. */
export function costWords(cost: EditCost): string {
  if (!fits(cost)) {
    const needed = cost.at_least ? `more than ${count(cost.limit)} tokens` : `${count(cost.of + 1)} tokens, and there is room for ${count(cost.limit)}`;
    return `Does not fit: ${needed}`;
  }
  return `${count(cost.of - cost.keeps)} tokens to read${timeWords(cost)}`;
}

/** The cost of another system prompt, in words. */
export function systemCostWords(cost: EditCost): string {
  return fits(cost) ? `${count(cost.of - cost.keeps)} tokens will be read again${timeWords(cost)}` : costWords(cost);
}

/** The estimated time of prefill, rounded coarsely. */
export function timeWords({ read_ms: ms }: EditCost): string {
  if (ms === null) return '';
  return ms < 1000 ? ', less than a second' : `, about ${roughly(ms)}`;
}
