import type { ApiError, TurnEvent } from '../types';

export function invalid(message: string): ApiError {
  return { code: 'invalid_argument', message };
}

/** The error event for a refusal that was thrown. */
export function refusalEvent(cause: unknown): TurnEvent {
  const { code, message } = cause as ApiError;
  return { event: 'error', code, message };
}
