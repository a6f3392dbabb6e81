import type { Backend } from '../backend/backend';
import { count, roughly } from './format';
import type { ConversationId, EditCost } from './types';

/** A text of fewer characters is read in no time, and fits. */
const MATTERS_CHARS = 1000;
const QUIET_MS = 400;
/** A long text is counted less often: all of it goes to the engine each time. */
const LONG_CHARS = 32_000;
const LONG_QUIET_MS = 1000;

/** Where something is written: a conversation, or what begins one. */
export type Place = { conversation: ConversationId } | { systemPrompt: string };

/** What sending the text of the composer would cost, once it is long enough to matter. */
export class DraftCost {
  cost = $state.raw<EditCost | null>(null);
  private timer: ReturnType<typeof setTimeout> | undefined;
  private asked = 0;

  constructor(private readonly backend: Backend) {}

  /** Notes what stands in the composer now. */
  write(place: Place, text: string): void {
    clearTimeout(this.timer);
    if (text.length < MATTERS_CHARS) return this.clear();
    // At once when another conversation's words come into view or much was pasted; else once the typing rests.
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
    // Without a model nobody knows.
    const cost = await asking.catch(() => null);
    if (asked === this.asked) this.cost = cost;
  }
}

/** Whether the prompt and one token of a reply have room. */
export function fits(cost: EditCost): boolean {
  return !cost.at_least && cost.of < cost.limit;
}

/** `16 400 tokens to read, about 38 s`, or that it does not fit. */
export function costWords(cost: EditCost): string {
  if (!fits(cost)) {
    const needed = cost.at_least ? `more than ${count(cost.limit)} tokens` : `${count(cost.of + 1)} tokens, and there is room for ${count(cost.limit)}`;
    return `Does not fit: ${needed}`;
  }
  return `${count(cost.of - cost.keeps)} tokens to read${timeWords(cost)}`;
}

/** What another system prompt would cost. */
export function systemCostWords(cost: EditCost): string {
  return fits(cost) ? `${count(cost.of - cost.keeps)} tokens will be read again${timeWords(cost)}` : costWords(cost);
}

/** How long reading would take: an estimate, as coarse as it is. */
export function timeWords({ read_ms: ms }: EditCost): string {
  if (ms === null) return '';
  return ms < 1000 ? ', less than a second' : `, about ${roughly(ms)}`;
}
