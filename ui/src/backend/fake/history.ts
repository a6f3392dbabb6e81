import type { Conversation, ConversationTree, Message, Sampling, SearchHit, Unsent } from '../types';
import { invalid } from './refusal';
import { searchAll } from './search';
import { makeConversation, makeMessage, type Seeded } from './seed';
import { titleOf } from './title';
import { promptOf } from './tokens';

type Entry = Seeded & { deleted: boolean };

/** Conversations, their messages and unsent texts. It runs no turns and knows no cache. */
export class FakeHistory {
  private readonly store = new Map<string, Entry>();
  private unsentTexts: Unsent[] = [];

  // ---- conversations

  list(): Conversation[] {
    const there = this.present().map((entry) => ({ ...entry.conversation }));
    return there.reverse().sort((a, b) => b.updated_at - a.updated_at);
  }

  insert(seeded: Seeded): void {
    this.store.set(seeded.conversation.id, { ...seeded, deleted: false });
  }

  create(systemPrompt: string | null, model: string | null): Conversation {
    const conversation = makeConversation(crypto.randomUUID(), '', Date.now(), null);
    conversation.system_prompt = systemPrompt ?? '';
    conversation.model = model;
    this.insert({ conversation, messages: [] });
    return { ...conversation };
  }

  tree(id: string): ConversationTree {
    const { conversation, messages } = this.entry(id);
    return { conversation: { ...conversation }, messages: messages.map((message) => ({ ...message })) };
  }

  rename(id: string, title: string): void {
    this.entry(id).conversation.title = titleOf(title);
  }

  remove(id: string): void {
    this.entry(id).deleted = true;
  }

  undoRemove(id: string): void {
    const entry = this.store.get(id);
    if (!entry) throw { code: 'conversation_missing', message: `no conversation ${id}` };
    entry.deleted = false;
  }

  setSampling(id: string, sampling: Sampling): void {
    const { conversation } = this.entry(id);
    refuseNonsense(sampling);
    conversation.sampling = { ...sampling };
  }

  setActiveLeaf(conversation: string, message: string): void {
    this.message(conversation, message);
    this.entry(conversation).conversation.active_leaf = message;
  }

  search(text: string): SearchHit[] {
    return searchAll(text, this.present());
  }

  // ---- unsent texts

  unsent(): Unsent[] {
    return this.unsentTexts.filter(({ conversation }) => !conversation || !this.store.get(conversation)?.deleted);
  }

  keepUnsent(unsent: Unsent): void {
    const { conversation, message, text } = unsent;
    const entry = conversation === null ? null : this.store.get(conversation);
    if (entry === undefined) throw { code: 'conversation_missing', message: `no conversation ${conversation}` };
    if (message !== null && !entry?.messages.some((one) => one.id === message)) throw { code: 'message_missing', message: `no message ${message}` };
    this.unsentTexts = this.unsentTexts.filter((one) => one.conversation !== conversation || one.message !== message);
    if (text) this.unsentTexts.push(unsent);
  }

  // ---- messages

  append(conversation: string, parent: string | null, role: 'user' | 'assistant', text: string): Message {
    const entry = this.entry(conversation);
    if (role === 'user' && !text.trim()) throw invalid('the message is empty; write something first');
    const message = makeMessage(conversation, parent, role, text, Date.now());
    entry.messages.push(message);
    this.unsentTexts = this.unsentTexts.filter((one) => one.conversation !== conversation || one.text !== text);
    entry.conversation.active_leaf = message.id;
    entry.conversation.updated_at = Date.now();
    return message;
  }

  /** The user message `id` if it has this text and no reply yet: sending the text again stores no second copy. */
  unanswered(conversation: string, id: string | null, text: string): Message | null {
    const { messages } = this.entry(conversation);
    const found = messages.find((one) => one.id === id && one.role === 'user' && one.text === text);
    return found && !messages.some((one) => one.parent === id) ? found : null;
  }

  message(conversation: string, id: string): Message {
    const message = this.entry(conversation).messages.find((candidate) => candidate.id === id);
    if (!message) throw { code: 'message_missing', message: `no message ${id}` };
    return message;
  }

  /** The messages from the root down to `leaf`. */
  branch(conversation: string, leaf: string | null): Message[] {
    const byId = new Map(this.entry(conversation).messages.map((message) => [message.id, message]));
    const path: Message[] = [];
    for (let at = leaf ? byId.get(leaf) : undefined; at; at = at.parent ? byId.get(at.parent) : undefined) path.push(at);
    return path.reverse();
  }

  /** The tokens of the branch that ends at `leaf`. */
  prompt(conversation: string, leaf: string | null): number[] {
    const { conversation: entry } = this.entry(conversation);
    return promptOf(entry.system_prompt, this.branch(conversation, leaf));
  }

  // ---- look-ups

  known(id: string): Entry | null {
    const entry = this.store.get(id);
    return entry && !entry.deleted ? entry : null;
  }

  entry(id: string): Entry {
    const entry = this.known(id);
    if (!entry) throw { code: 'conversation_missing', message: `no conversation ${id}` };
    return entry;
  }

  private present(): Entry[] {
    return [...this.store.values()].filter((entry) => !entry.deleted);
  }
}

/** The shell accepts only whole, non-negative numbers of tokens. */
function refuseNonsense({ top_k, max_tokens, seed }: Sampling): void {
  const wrong = [top_k, max_tokens, seed].find((value) => value !== null && (!Number.isInteger(value) || value < 0));
  if (wrong !== undefined) throw invalid(`${wrong} is no number of tokens`);
}
