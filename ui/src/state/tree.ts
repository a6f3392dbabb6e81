// A conversation is a tree of messages; these functions read it and change nothing.
import type { Message, MessageId } from './types';

export class MessageTree {
  private readonly byId = new Map<MessageId, Message>();
  private readonly children = new Map<MessageId | null, Message[]>();

  /** `messages` in order of creation, parents before children. */
  constructor(readonly messages: readonly Message[]) {
    for (const message of messages) {
      this.byId.set(message.id, message);
      const siblings = this.children.get(message.parent);
      if (siblings) siblings.push(message);
      else this.children.set(message.parent, [message]);
    }
  }

  get(id: MessageId | null): Message | undefined {
    return id === null ? undefined : this.byId.get(id);
  }

  /** The messages from the root to `leaf`, both included. */
  branch(leaf: MessageId | null): Message[] {
    const path: Message[] = [];
    for (let at = this.get(leaf); at && path.length <= this.byId.size; at = this.get(at.parent)) path.push(at);
    return path.reverse();
  }

  /** The message and its alternatives, oldest first. */
  siblings(message: Message): readonly Message[] {
    return this.children.get(message.parent) ?? [message];
  }

  /** The newest leaf below `id`, preferring a remembered one. */
  leafUnder(id: MessageId, remembered: ReadonlyMap<MessageId, MessageId>): MessageId {
    let at = id;
    for (let depth = 0; depth <= this.byId.size; depth += 1) {
      const children = this.children.get(at);
      if (!children?.length) return at;
      const before = remembered.get(at);
      at = children.some((child) => child.id === before) ? (before as MessageId) : children[children.length - 1].id;
    }
    return at;
  }

  /** Turns that a shorter branch leaves out before this message, its first; 0 for any other message. */
  leftOut(message: Message): number {
    let at: Message | undefined = message;
    for (let step = 0; at && at.parent === null && at.edited_from && step <= this.byId.size; step += 1) at = this.get(at.edited_from);
    if (message.parent !== null || !at?.parent) return 0;
    return this.branch(at.parent).filter((before) => before.role === 'user').length;
  }

  newestLeaf(): MessageId | null {
    return this.messages.length ? this.messages[this.messages.length - 1].id : null;
  }

  /** The tree with these messages added, or put in place of those with the same id. */
  with(changed: readonly Message[]): MessageTree {
    const next = new Map(this.byId);
    for (const message of changed) next.set(message.id, message);
    return new MessageTree([...next.values()]);
  }
}
