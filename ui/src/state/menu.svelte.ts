import { tick } from 'svelte';
import type { ConversationId, MessageId, Role } from './types';

export type Command =
  | 'cut' | 'copy' | 'paste' | 'select-all'
  | 'open-link' | 'copy-link' | 'copy-selection'
  | 'copy-message' | 'edit' | 'regenerate' | 'continue'
  | 'open' | 'rename' | 'copy-markdown' | 'save-markdown' | 'save-json' | 'delete';

export interface MenuItem {
  command: Command;
  label: string;
  disabled?: boolean;
}

/** The target of a context menu. Several fields may be set, such as a selection in a message. */
export interface Pointed {
  field: { text: string; marked: boolean; readOnly: boolean } | null;
  link: string | null;
  selection: string;
  message: { id: MessageId; role: Role; text: string; continues: boolean } | null;
  conversation: ConversationId | null;
  /** A reply is streaming in the open conversation, so its messages cannot be changed. */
  streaming: boolean;
}

/** The items of the context menu, in groups; empty groups are left out. */
export function menuOf(pointed: Pointed): MenuItem[][] {
  if (pointed.field) return ofField(pointed.field);
  const groups: MenuItem[][] = [];
  if (pointed.link) {
    groups.push([
      { command: 'open-link', label: 'Open the link' },
      { command: 'copy-link', label: 'Copy its address' },
    ]);
  }
  if (pointed.selection) groups.push([{ command: 'copy-selection', label: 'Copy the marked text' }]);
  if (pointed.message) groups.push(ofMessage(pointed.message, pointed.streaming));
  if (pointed.conversation) groups.push(...ofConversation());
  return groups;
}

function ofField({ text, marked, readOnly }: NonNullable<Pointed['field']>): MenuItem[][] {
  return [
    [
      { command: 'cut', label: 'Cut', disabled: !marked || readOnly },
      { command: 'copy', label: 'Copy', disabled: !marked },
      { command: 'paste', label: 'Paste', disabled: readOnly },
    ],
    [{ command: 'select-all', label: 'Select all', disabled: text === '' }],
  ];
}

function ofMessage({ role, text, continues }: NonNullable<Pointed['message']>, streaming: boolean): MenuItem[] {
  const items: MenuItem[] = [
    { command: 'copy-message', label: role === 'assistant' ? 'Copy the reply' : 'Copy the message', disabled: text === '' },
    { command: 'edit', label: 'Edit', disabled: streaming },
  ];
  if (role === 'assistant') items.push({ command: 'regenerate', label: 'Regenerate', disabled: streaming });
  if (continues) items.push({ command: 'continue', label: 'Continue', disabled: streaming });
  return items;
}

function ofConversation(): MenuItem[][] {
  return [
    [
      { command: 'open', label: 'Open' },
      { command: 'rename', label: 'Rename' },
    ],
    [
      { command: 'copy-markdown', label: 'Copy as Markdown' },
      { command: 'save-markdown', label: 'Save as Markdown…' },
      { command: 'save-json', label: 'Save as JSON…' },
    ],
    [{ command: 'delete', label: 'Delete' }],
  ];
}

export interface ShownMenu {
  /** The position of the pointer in CSS pixels. */
  x: number;
  y: number;
  groups: MenuItem[][];
  run: (command: Command) => void;
}

/** The context menu of the element under the pointer, or of the focused element if a key opened it. */
export class Menu {
  shown = $state.raw<ShownMenu | null>(null);
  /** A command for an item of the conversation list, which the item runs itself. */
  asked = $state.raw<{ command: 'rename' | 'delete'; conversation: ConversationId } | null>(null);

  open(x: number, y: number, pointed: Pointed, run: (command: Command) => void): void {
    const groups = menuOf(pointed);
    this.shown = groups.length ? { x, y, groups, run } : null;
  }

  close(): void {
    this.shown = null;
  }

  async choose(command: Command): Promise<void> {
    const run = this.shown?.run;
    this.close();
    // First the focus returns to where it was; then the command may move it.
    await tick();
    run?.(command);
  }

  /** Takes the command for this conversation, once. */
  take(conversation: ConversationId): 'rename' | 'delete' | null {
    if (this.asked?.conversation !== conversation) return null;
    const { command } = this.asked;
    this.asked = null;
    return command;
  }
}
