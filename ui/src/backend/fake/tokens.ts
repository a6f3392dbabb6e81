// A stand-in for a tokenizer: pieces of words, numbered in the order they are first seen.
const PIECE = /\s?[\p{L}\p{N}]{1,5}|\s+|[^\s\p{L}\p{N}]/gu;
const ids = new Map<string, number>();

/** Tokens of the template around every message. */
export const TEMPLATE_TOKENS = 4;

export function pieces(text: string): string[] {
  return text.match(PIECE) ?? [];
}

export function encode(text: string): number[] {
  return pieces(text).map(idOf);
}

/** One message of a prompt: a marker of its role, its text, the template's end. */
export function encodeMessage(role: string, text: string): number[] {
  return [idOf('<|start|>'), idOf(`<|${role}|>`), ...encode(text), idOf('<|end|>'), idOf('\n')];
}

/** The prompt of a conversation, in tokens. */
export function promptOf(systemPrompt: string, branch: readonly { role: string; text: string }[]): number[] {
  const parts = branch.map((message) => encodeMessage(message.role, message.text));
  return [...(systemPrompt ? [encodeMessage('system', systemPrompt)] : []), ...parts].flat();
}

export function commonPrefix(a: readonly number[], b: readonly number[]): number {
  const most = Math.min(a.length, b.length);
  let at = 0;
  while (at < most && a[at] === b[at]) at += 1;
  return at;
}

function idOf(piece: string): number {
  const known = ids.get(piece);
  if (known !== undefined) return known;
  ids.set(piece, ids.size);
  return ids.size - 1;
}
