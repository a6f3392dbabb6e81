import type { OnTurnEvent } from '../backend';
import type { Message, MessageState, Prefill, Sampling } from '../types';
import type { FakeCache } from './cache';
import type { FakeOptions } from './options';
import { replyTo, restOf } from './replies';
import { encode, pieces } from './tokens';

const CHUNK_TOKENS = 64;
const TICK_MS = 16;

interface Job {
  question: string;
  /** The stored reply; it grows in place. */
  reply: Message;
  prompt: number[];
  number: number;
  sampling: Sampling;
}

/** One reply on timers: prefill by chunks with progress, then tokens at the asked rate; stoppable throughout. */
export class FakeTurn {
  private stopped = false;

  constructor(
    private readonly options: FakeOptions,
    private readonly cache: FakeCache,
    private readonly job: Job,
  ) {}

  stop(): void {
    this.stopped = true;
  }

  async run(onEvent: OnTurnEvent): Promise<void> {
    const { reply, prompt } = this.job;
    const began = performance.now();
    onEvent({ event: 'started', user: null, reply: { ...reply } });
    const prefill = this.cache.match(prompt);
    // The turn has taken over what it could use of a draft.
    this.cache.readAhead([]);
    const read = await this.prefill(prefill, onEvent);
    const ttft = performance.now() - began;
    this.cache.keep(prompt.slice(0, read));
    if (this.stopped) return this.finish(onEvent, 'stopped', { ...prefill, computed: read - prefill.resident - prefill.restored }, 0, ttft, began);
    await this.decode(onEvent, prefill, ttft);
  }

  /** Returns how many tokens of the prompt are ready. */
  private async prefill({ resident, restored }: Prefill, onEvent: OnTurnEvent): Promise<number> {
    const total = this.job.prompt.length;
    let done = resident + restored;
    while (done < total) {
      onEvent({ event: 'prefill', done, total, resident, restored });
      const next = Math.min((Math.floor(done / CHUNK_TOKENS) + 1) * CHUNK_TOKENS, total);
      await pause(Math.max((1000 * (next - done)) / this.options.prefillRate, 4));
      if (this.stopped) return done;
      done = next;
    }
    onEvent({ event: 'prefill', done, total, resident, restored });
    return done;
  }

  private async decode(onEvent: OnTurnEvent, prefill: Prefill, ttft: number): Promise<void> {
    const { reply, question, number, sampling } = this.job;
    const thought = this.options.thinking ? '<think>\nThe text repeats one sentence; say it once.\n</think>\n\n' : '';
    const answer = reply.text ? restOf(reply.text, thought, question, number, this.options.hostile) : thought + replyTo(question, number, this.options.hostile);
    const whole = pieces(untilStop(answer, sampling.stop));
    const tokens = whole.slice(0, sampling.max_tokens ?? whole.length);
    const began = performance.now();
    let written = 0;
    while (written < tokens.length && !this.stopped) {
      await pause(Math.max(TICK_MS, 1000 / this.options.decodeRate));
      const due = Math.min(tokens.length, Math.max(written + 1, Math.floor(((performance.now() - began) / 1000) * this.options.decodeRate)));
      for (; written < due; written += 1) {
        reply.text += tokens[written];
        onEvent({ event: 'token', text: tokens[written] });
      }
      if (this.options.breakCode && written > 20) {
        // An engine that was started again marks what the one before it left unfinished.
        reply.state = this.options.breakCode === 'engine_restarted' ? 'interrupted' : 'failed';
        return onEvent({ event: 'error', code: this.options.breakCode, message: `broke off with ${this.options.breakCode}` });
      }
    }
    const ended = tokens.length < whole.length ? 'length' : 'complete';
    this.finish(onEvent, this.stopped ? 'stopped' : ended, prefill, written, ttft, began);
  }

  private finish(onEvent: OnTurnEvent, state: MessageState, prefill: Prefill, written: number, ttft: number, began: number): void {
    const { reply, prompt } = this.job;
    const seconds = (performance.now() - began) / 1000;
    const stats = {
      prefill, prompt_tokens: prompt.length, completion_tokens: written, ttft_ms: ttft, tokens_per_s: written > 1 ? written / seconds : 0,
      restore_ms: prefill.restored / 100,
    };
    Object.assign(reply, { state, stats, num_tokens: encode(reply.text).length });
    if (written) this.cache.keep([...prompt, ...encode(reply.text)]);
    onEvent({ event: 'finished', message: reply.id, model: reply.model, text: reply.text, state, ...stats });
  }
}

/** The text before the first stop string. */
function untilStop(text: string, stop: readonly string[]): string {
  const found = stop.filter(Boolean).map((string) => text.indexOf(string)).filter((at) => at >= 0);
  return text.slice(0, Math.min(text.length, ...found));
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
