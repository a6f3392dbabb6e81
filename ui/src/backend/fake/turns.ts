import type { OnTurnEvent } from '../backend';
import type { Message, Shorten, TurnEvent } from '../types';
import type { FakeCaches } from './caches';
import type { FakeHistory } from './history';
import type { FakeModels } from './models';
import type { FakeOptions } from './options';
import { invalid, refusalEvent } from './refusal';
import { makeMessage } from './seed';
import { choicesOf, tooLong, summarise, turnsToLeave, turnStarts, wantsMore } from './shorten';
import { titleFrom } from './title';
import { encodeMessage } from './tokens';
import { FakeTurn } from './turn';

/** The turns: at most one per conversation, each refused, answered or moved to a shorter branch. */
export class FakeTurns {
  private readonly running = new Map<string, { stop(): void }>();

  constructor(
    private readonly options: FakeOptions,
    private readonly history: FakeHistory,
    private readonly models: FakeModels,
    private readonly caches: FakeCaches,
  ) {}

  get anyRunning(): boolean {
    return this.running.size > 0;
  }

  send(conversation: string, parent: string | null, text: string, onEvent: OnTurnEvent): void {
    this.begin(conversation, onEvent, () => {
      const { conversation: entry } = this.history.entry(conversation);
      const above = parent === null ? entry.active_leaf : this.history.message(conversation, parent).id;
      const user = this.history.unanswered(conversation, above, text) ?? this.history.append(conversation, above, 'user', text);
      entry.title ||= titleFrom(text);
      this.generate(conversation, user, null, onEvent, user);
    });
  }

  edit(conversation: string, message: string, text: string, onEvent: OnTurnEvent): void {
    this.begin(conversation, onEvent, () => {
      const old = this.history.message(conversation, message);
      const copy = this.history.append(conversation, old.parent, old.role as 'user' | 'assistant', text);
      copy.edited_from = old.id;
      if (old.role === 'user') return this.generate(conversation, copy, null, onEvent, copy);
      onEvent({ event: 'started', user: null, reply: { ...copy } });
      onEvent(storedEvent(copy));
    });
  }

  regenerate(conversation: string, message: string, onEvent: OnTurnEvent): void {
    this.begin(conversation, onEvent, () => {
      const old = this.history.message(conversation, message);
      const user = old.role === 'user' ? old : this.history.message(conversation, old.parent ?? '');
      this.generate(conversation, user, null, onEvent, null);
    });
  }

  continueReply(conversation: string, message: string, onEvent: OnTurnEvent): void {
    this.begin(conversation, onEvent, () => {
      const reply = this.history.message(conversation, message);
      if (reply.role !== 'assistant' || reply.state === 'complete' || reply.state === 'generating') throw invalid('only a reply that was cut off can go on');
      this.generate(conversation, this.history.message(conversation, reply.parent ?? ''), reply, onEvent, null);
    });
  }

  shorten(conversation: string, how: Shorten, onEvent: OnTurnEvent): void {
    this.begin(conversation, onEvent, () => {
      const leaf = this.history.entry(conversation).conversation.active_leaf;
      this.loadFor(conversation, null, onEvent);
      turnsToLeave(this.history.branch(conversation, leaf), how, this.options.contextTokens);
      void this.goOnShorter(conversation, leaf, how, onEvent);
    });
  }

  stop(conversation: string): void {
    this.running.get(conversation)?.stop();
  }

  /** Begins a turn. A refusal is its only event, like in the shell. */
  private begin(conversation: string, onEvent: OnTurnEvent, work: () => void): void {
    try {
      if (this.options.errorCode) throw { code: this.options.errorCode, message: `refused with ${this.options.errorCode}` };
      this.history.entry(conversation);
      if (this.running.has(conversation)) throw { code: 'busy', message: 'a reply is being written' };
      work();
    } catch (refusal) {
      onEvent(refusalEvent(refusal));
    }
  }

  /** Copies the newest turns into a shorter branch beside the full one, then answers the last message if it has no reply. */
  private async goOnShorter(conversation: string, from: string | null, how: Shorten, onEvent: OnTurnEvent): Promise<void> {
    const branch = this.history.branch(conversation, from);
    const turns = turnsToLeave(branch, how, this.options.contextTokens);
    const first = turnStarts(branch)[turns] ?? branch.length;
    let stopped = false;
    this.running.set(conversation, { stop: () => (stopped = true) });
    onEvent({ event: 'shortening', how, turns, left_out: 0 });
    const summary = how === 'compact' ? await summarise(branch.slice(0, first), this.options.decodeRate, () => stopped, onEvent) : null;
    this.running.delete(conversation);
    if (how === 'compact' && summary === null) return onEvent({ event: 'error', code: 'stopped', message: 'stopped before anything was changed' });
    const messages: Message[] = [];
    const add = (message: Message) => {
      this.history.entry(conversation).messages.push(message);
      messages.push(message);
    };
    if (summary !== null) add({ ...makeMessage(conversation, null, 'user', summary, Date.now()), kind: 'summary', model: this.models.loaded });
    for (const message of branch.slice(first)) add({ ...message, id: crypto.randomUUID(), parent: messages.at(-1)?.id ?? null, edited_from: message.id });
    const leaf = messages[messages.length - 1];
    Object.assign(this.history.entry(conversation).conversation, { active_leaf: leaf.id, updated_at: Date.now() });
    onEvent({ event: 'shortened', how, messages: messages.map((message) => ({ ...message })), turns, left_out: 0 });
    if (!wantsMore(leaf)) return onEvent(storedEvent(leaf));
    if (leaf.role === 'user') this.generate(conversation, leaf, null, onEvent, null, true);
    else this.generate(conversation, this.history.message(conversation, leaf.parent ?? ''), leaf, onEvent, null, true);
  }

  private generate(conversation: string, user: Message, going: Message | null, onEvent: OnTurnEvent, stored: Message | null, shorter = false): void {
    let model: string;
    try {
      model = this.loadFor(conversation, stored, onEvent);
    } catch (missing) {
      return onEvent(refusalEvent(missing));
    }
    // The engine, too, drops half a character at the end of a reply that an earlier version stored.
    if (going) going.text = going.text.replace(/\ufffd+$/u, '');
    const prompt = [...this.history.prompt(conversation, user.id), ...(going ? encodeMessage('assistant', going.text).slice(0, -2) : encodeMessage('assistant', '').slice(0, 2))];
    if ((this.options.contextFull && !shorter) || prompt.length >= this.options.contextTokens) return this.overflow(conversation, user, going, prompt.length, onEvent);
    const reply = going ?? this.history.append(conversation, user.id, 'assistant', '');
    Object.assign(reply, { state: 'generating', model });
    const { messages, conversation: { sampling } } = this.history.entry(conversation);
    // At temperature 0 the same prompt gets the same reply.
    const number = sampling.temperature === 0 ? this.history.branch(conversation, user.id).length : messages.length;
    const turn = new FakeTurn(this.options, this.caches.current, { question: user.text, reply, prompt, number, sampling });
    this.running.set(conversation, turn);
    void turn.run((event) => {
      // The listener may begin the next turn when it hears that this one has ended.
      if (event.event === 'finished' || event.event === 'error') this.running.delete(conversation);
      onEvent(event);
    });
  }

  /** The prompt does not fit: goes on in a shorter branch if the conversation says so, else reports the choices. */
  private overflow(conversation: string, user: Message, going: Message | null, promptTokens: number, onEvent: OnTurnEvent): void {
    const { when_full: when, system_prompt } = this.history.entry(conversation).conversation;
    const branch = this.history.branch(conversation, going?.id ?? user.id);
    const limit_tokens = this.options.contextTokens;
    const too_long = tooLong(system_prompt, branch, limit_tokens);
    const choices = choicesOf(branch, too_long, this.options.contextFull ? null : { contextTokens: limit_tokens });
    if ((when === 'compact' || when === 'drop_oldest') && choices.includes(when)) return void this.goOnShorter(conversation, going?.id ?? user.id, when, onEvent);
    // The engine counts at most one token more than the context holds.
    const at_least = promptTokens > limit_tokens;
    const needed_tokens = this.options.contextFull ? limit_tokens + 1 : Math.min(promptTokens, limit_tokens + 1) + 1;
    onEvent({ event: 'context_full', message: user.id, needed_tokens, at_least, too_long, limit_tokens, choices: when === 'stop' ? [] : choices });
  }

  /** Loads the model of the conversation, or reports a fallback and binds the conversation to it. The user message is stored by then. */
  private loadFor(id: string, stored: Message | null, onEvent: OnTurnEvent): string {
    if (stored) onEvent({ event: 'started', user: { ...stored }, reply: null });
    const { conversation } = this.history.entry(id);
    const fallback = this.models.answer(conversation.model);
    const model = this.models.loaded as string;
    conversation.model = model;
    if (fallback) onEvent(fallback);
    return model;
  }
}

/** The last event of a turn in which no model ran. */
function storedEvent(message: Message): TurnEvent {
  const prefill = { resident: 0, restored: 0, computed: 0 };
  return { event: 'finished', message: message.id, model: message.model, text: message.text, state: message.state, prefill, prompt_tokens: 0, completion_tokens: 0, ttft_ms: 0, tokens_per_s: 0, restore_ms: 0 };
}
