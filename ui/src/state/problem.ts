// What went wrong, in words, and what can be done about it. The code decides; the message is detail.
import type { ApiError, ContextChoice } from './types';

export type Remedy = 'choose_model' | 'reload' | 'retry' | Exclude<ContextChoice, 'stop'>;

export interface Problem {
  code: string;
  title: string;
  advice: string;
  /** The shell's own words, shown small. */
  detail: string;
  remedies: Remedy[];
}

const KNOWN: Record<string, { title: string; advice: string; remedies: Remedy[] }> = {
  model_missing: { title: 'No model is loaded', advice: 'Choose one, then send again.', remedies: ['choose_model', 'retry'] },
  model_broken: { title: 'The model file cannot be read', advice: 'It may be incomplete. Choose another, or fetch it again.', remedies: ['choose_model'] },
  memory_full: { title: 'There is not enough memory', advice: 'Close other programs, give conversations more memory in the settings, or start a new one.', remedies: ['new_conversation', 'retry'] },
  context_full: { title: 'This conversation is full', advice: 'Go on in a shorter branch, or start a new one.', remedies: ['compact', 'drop_oldest', 'new_conversation'] },
  no_summary: { title: 'The model wrote no summary', advice: 'Nothing has changed. The oldest turns can be dropped instead.', remedies: ['drop_oldest'] },
  conversation_missing: { title: 'This conversation is gone', advice: 'It may have been deleted in the meantime.', remedies: ['new_conversation'] },
  message_missing: { title: 'This message is gone', advice: 'Read the conversation again from disk.', remedies: ['reload'] },
  busy: { title: 'The model is busy', advice: 'Another reply is being written. Wait for it, or stop it.', remedies: ['retry'] },
  invalid_argument: { title: 'That cannot be done', advice: 'Change it and try again.', remedies: [] },
  locked: { title: 'The conversations are locked', advice: 'Start Reprise again and say the passphrase.', remedies: [] },
  wrong_passphrase: { title: 'This is not the passphrase', advice: 'Try again.', remedies: [] },
  keychain: { title: 'The keychain cannot be used', advice: 'Use a passphrase instead.', remedies: [] },
  storage: { title: 'It could not be saved', advice: 'Check that the disk has room and the data folder can be written.', remedies: ['retry'] },
  engine_restarted: { title: 'The engine stopped and was started again', advice: 'What was written so far is kept. Continue the reply, or write on.', remedies: [] },
  engine_unavailable: { title: 'The engine cannot be started', advice: 'Nothing is lost. Try again; if it stays so, install Reprise again.', remedies: ['retry'] },
  gpu_failed: { title: 'The GPU failed', advice: 'What was written so far is kept. Continue the reply, write on, or choose the CPU in the settings.', remedies: ['retry'] },
  internal: { title: 'Something went wrong', advice: 'Nothing you wrote is lost. Try again.', remedies: ['retry'] },
};

export function asApiError(cause: unknown): ApiError {
  if (typeof cause === 'object' && cause !== null && 'code' in cause && 'message' in cause) {
    return { code: String(cause.code), message: String(cause.message) };
  }
  return { code: 'internal', message: cause instanceof Error ? cause.message : String(cause) };
}

export function problemOf(cause: unknown, retryable: boolean): Problem {
  const { code, message } = asApiError(cause);
  const known = KNOWN[code] ?? KNOWN.internal;
  const remedies = known.remedies.filter((remedy) => remedy !== 'retry' || retryable);
  // What the title says already is no detail.
  const detail = message.toLowerCase() === known.title.toLowerCase() ? '' : message;
  return { code, title: known.title, advice: known.advice, detail, remedies };
}

export function contextProblem(needed: string, limit: string, choices: readonly ContextChoice[]): Problem {
  return {
    code: 'context_full',
    title: KNOWN.context_full.title,
    advice: `It needs ${needed} tokens and there is room for ${limit}.${choices.length ? ' The full branch stays whatever you choose.' : ''}`,
    detail: '',
    remedies: remediesOf(choices),
  };
}

/** What the buttons offer; to stop is to do nothing. */
export function remediesOf(choices: readonly ContextChoice[]): Exclude<ContextChoice, 'stop'>[] {
  return choices.filter((choice) => choice !== 'stop');
}
