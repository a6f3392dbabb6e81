// What went wrong, in words, and what can be done about it. The code decides; the message is detail.
import { count } from './format';
import type { ApiError, ContextChoice, TooLong, TurnEvent } from './types';

export type Remedy = 'choose_model' | 'reload' | 'retry' | Exclude<ContextChoice, 'stop'>;

/** The label of the button for each remedy. */
export const REMEDY_LABELS: Record<Remedy, string> = {
  choose_model: 'Choose a model',
  larger_context: 'Raise the context',
  compact: 'Compact into a new branch',
  drop_oldest: 'Drop the oldest turns',
  new_conversation: 'New conversation',
  edit_earlier: 'Edit the message',
  edit_system_prompt: 'Edit the system prompt',
  reload: 'Read again',
  retry: 'Try again',
};

export interface Problem {
  code: string;
  title: string;
  advice: string;
  /** The shell's own words, shown small. */
  detail: string;
  remedies: Remedy[];
}

const KNOWN: Record<string, { title: string; advice: string; remedies: Remedy[] }> = {
  model_missing: { title: 'No model to answer with', advice: 'Choose one, or add a model file.', remedies: ['choose_model', 'retry'] },
  model_file_missing: { title: 'There is no file at this path', advice: 'It may have been moved or renamed.', remedies: ['choose_model'] },
  model_unreadable: { title: 'The file cannot be read', advice: 'Check its permissions, and the disk that it is on.', remedies: ['choose_model'] },
  model_not_a_file: { title: 'This is not a file', advice: 'Choose a model file in GGUF format.', remedies: ['choose_model'] },
  model_empty: { title: 'The file is empty', advice: 'Fetch it again.', remedies: ['choose_model'] },
  model_not_gguf: { title: 'This is not a model file', advice: 'Choose one in GGUF format.', remedies: ['choose_model'] },
  model_incomplete: { title: 'The model file is not whole', advice: 'Wait for its download to end, or fetch it again.', remedies: ['choose_model'] },
  model_part: { title: 'This is one part of a model', advice: 'Join the parts, or fetch the model as one file.', remedies: ['choose_model'] },
  model_projector: { title: 'This is a projector, not a model', advice: 'Choose the model that it came with.', remedies: ['choose_model'] },
  model_draft: { title: 'This is a draft model', advice: 'Choose the model that it guesses ahead of.', remedies: ['choose_model'] },
  model_adapter: { title: 'This is an adapter, not a model', advice: 'Choose a model that has it merged in.', remedies: ['choose_model'] },
  model_unsupported: { title: 'This kind of model cannot be run', advice: 'The file may be sound. Choose a model of another kind.', remedies: ['choose_model'] },
  model_broken: { title: 'The model file is damaged', advice: 'Choose another, or fetch it again.', remedies: ['choose_model'] },
  model_changing: { title: 'The model file is being written', advice: 'Wait until that has ended.', remedies: ['choose_model', 'retry'] },
  template_failed: { title: 'The model cannot take this conversation', advice: 'Its chat template refuses it. Choose another model, or change the message.', remedies: ['choose_model'] },
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
  disk_full: { title: 'The disk is full', advice: 'Make room on it, then try again. What was saved is kept.', remedies: ['retry'] },
  read_only: { title: 'Nothing can be written here', advice: 'The data folder or its disk is read-only. Allow writing there, or start Reprise with another folder.', remedies: ['retry'] },
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

const TOO_LONG: Record<TooLong, string> = {
  system_prompt: 'The system prompt is longer than the context',
  message: 'This message is longer than the context',
};

export function contextProblem(event: Extract<TurnEvent, { event: 'context_full' }>): Problem {
  const { needed_tokens, at_least, limit_tokens, too_long, choices } = event;
  // If only a lower bound is known, no exact count is given.
  const needed = at_least ? `more than ${count(limit_tokens)}` : count(needed_tokens);
  const room = at_least ? 'there is room for no more' : `there is room for ${count(limit_tokens)}`;
  const stays = choices.length && !too_long ? ' The full branch stays whatever you choose.' : '';
  return {
    code: 'context_full',
    title: too_long ? TOO_LONG[too_long] : KNOWN.context_full.title,
    advice: `It needs ${needed} tokens, and ${room}.${too_long ? ' Shorten it.' : stays}`,
    detail: '',
    remedies: remediesOf(choices),
  };
}

/** What the buttons offer; to stop is to do nothing. */
export function remediesOf(choices: readonly ContextChoice[]): Exclude<ContextChoice, 'stop'>[] {
  return choices.filter((choice) => choice !== 'stop');
}
