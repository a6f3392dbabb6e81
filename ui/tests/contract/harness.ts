// The parts of a scenario. The real window has no test runner, so assertions are defined here.
import type { Backend, OnTurnEvent } from '../../src/backend/backend';
import type { ApiError, Conversation, Message, Sampling, TurnEvent } from '../../src/backend/types';

/** The state at the start of a scenario: two models with one loaded; conversations encrypted under `PASSPHRASE`; no model. */
export type Start = 'ready' | 'locked' | 'no_model';

/** A promise of every backend. It asserts no times and no words of a model. */
export interface Scenario {
  name: string;
  start: Start;
  run(backend: Backend): Promise<void>;
}

export const PASSPHRASE = 'open sesame';

export type Finished = Extract<TurnEvent, { event: 'finished' }>;
export type ContextFull = Extract<TurnEvent, { event: 'context_full' }>;

/** One running turn. */
export class Turn {
  readonly events: TurnEvent[] = [];
  private readonly waiting = new Set<() => void>();

  constructor(ask: (onEvent: OnTurnEvent) => Promise<void>) {
    ask((event) => this.receive(event)).catch((cause: unknown) => {
      // Refusals arrive as events; a rejected promise would be an error of the shell itself.
      this.receive({ event: 'error', code: 'rejected', message: JSON.stringify(cause) });
    });
  }

  /** Resolves at the first event for which `holds` is true, or when the turn has ended. */
  async until(holds: (event: TurnEvent) => boolean): Promise<void> {
    await new Promise<void>((resolve) => {
      const look = () => {
        if (!this.events.some((event) => holds(event) || isLast(event))) return;
        this.waiting.delete(look);
        resolve();
      };
      this.waiting.add(look);
      look();
    });
  }

  async end(): Promise<TurnEvent> {
    await this.until(() => false);
    return this.events[this.events.length - 1];
  }

  async finished(): Promise<Finished> {
    const last = await this.end();
    if (last.event !== 'finished') throw new Error(`the turn ended with ${JSON.stringify(last)}`);
    return last;
  }

  private receive(event: TurnEvent): void {
    this.events.push(event);
    for (const look of [...this.waiting]) look();
  }
}

function isLast(event: TurnEvent): boolean {
  return ['finished', 'context_full', 'error'].includes(event.event);
}

export function check(holds: boolean, what: string): void {
  if (!holds) throw new Error(what);
}

export function same(actual: unknown, expected: unknown, what: string): void {
  const [is, should] = [JSON.stringify(actual), JSON.stringify(expected)];
  check(is === should, `${what}: ${is}, and should be ${should}`);
}

/** Asserts that each of these is refused with this code, as an `ApiError`. */
export async function refused(code: string, asked: Record<string, Promise<unknown>>): Promise<void> {
  for (const [what, promise] of Object.entries(asked)) {
    const outcome = await promise.then(() => 'accepted' as const, (cause: unknown) => cause);
    check(outcome !== 'accepted', `${what} is accepted, and should be refused with ${code}`);
    const error = outcome as Partial<ApiError>;
    check(error?.code === code, `${what} is refused with ${JSON.stringify(outcome)}, and should be with ${code}`);
    check((error.message ?? '').length > 0, `${what} is refused without a word`);
  }
}

/** Asserts that the only event of each turn is an error with this code. */
export async function refusedTurns(code: string, asked: Record<string, (onEvent: OnTurnEvent) => Promise<void>>): Promise<void> {
  for (const [what, ask] of Object.entries(asked)) {
    const turn = new Turn(ask);
    await turn.end();
    same(turn.events.map((event) => [event.event, 'code' in event && event.code]), [['error', code]], what);
  }
}

/** Creates a conversation at temperature 0 with short replies. */
export async function begin(backend: Backend, change: Partial<Sampling> = {}): Promise<Conversation> {
  const conversation = await backend.createConversation(null, null);
  await likeliest(backend, conversation.id, { max_tokens: 4, ...change });
  return conversation;
}

export async function likeliest(backend: Backend, id: string, change: Partial<Sampling>): Promise<void> {
  const { conversation } = await backend.getConversation(id);
  await backend.setSampling(id, { ...conversation.sampling, temperature: 0, ...change });
}

export async function say(backend: Backend, id: string, text: string): Promise<Finished> {
  return await new Turn((onEvent) => backend.sendMessage(id, null, text, onEvent)).finished();
}

export async function messages(backend: Backend, id: string): Promise<Message[]> {
  return (await backend.getConversation(id)).messages;
}

export async function message(backend: Backend, id: string, of: string | null): Promise<Message> {
  const found = (await messages(backend, id)).find((one) => one.id === of);
  if (!found) throw new Error(`there is no message ${of}`);
  return found;
}

/** Numbers the results of `word`, so that no two scenarios share one. */
let said = 0;
export function word(): string {
  said += 1;
  return `zq${Date.now().toString(36)}x${said.toString(36)}`;
}
