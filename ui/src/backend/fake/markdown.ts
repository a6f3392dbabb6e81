import type { Conversation, Message } from '../types';

/** The shown branch in the format that the history exports. */
export function markdownOf(conversation: Conversation, branch: readonly Message[]): string {
  const section = (heading: string, body: string) => `\n## ${heading}\n\n${body.trimEnd()}\n`;
  const system = conversation.system_prompt ? section('System', conversation.system_prompt) : '';
  return [`# ${conversation.title || 'Conversation'}\n`, system, ...branch.map((message) => section(headingOf(message), message.text))].join('');
}

function headingOf({ role, kind, model }: Message): string {
  if (role === 'system') return 'System';
  if (role === 'user') return kind === 'summary' ? 'Summary' : 'You';
  return model ? `Assistant (${model})` : 'Assistant';
}
