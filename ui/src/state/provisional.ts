// Messages shown for a turn before the shell has stored them.
import type { Message, MessageId, Role } from './types';

let next = 1;

export function provisional(conversation: string, parent: MessageId | null, role: Role, text: string): Message {
  return {
    id: `pending-${next++}`,
    conversation,
    parent,
    role,
    text,
    num_tokens: 0,
    state: role === 'assistant' ? 'generating' : 'complete',
    model: null,
    stats: null,
    created_at: Date.now(),
    edited_from: null,
    kind: 'said',
  };
}

export function isProvisional(message: Message): boolean {
  return message.id.startsWith('pending-');
}
