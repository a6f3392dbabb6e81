// Collects from the page the target of a context menu, and runs the commands of the menu.
import { spoken } from '../markdown/thought';
import type { App } from '../state/app.svelte';
import type { Command, Pointed } from '../state/menu.svelte';
import type { Message } from '../state/types';
import { focusOn } from './shortcuts';

type Field = HTMLInputElement | HTMLTextAreaElement;

const TEXT_FIELDS = 'textarea, input:not([type]), input[type="text"], input[type="search"], input[type="password"]';

/** Opens the context menu of `target` at this position, if it has one. */
export function openMenu(app: App, target: Element, x: number, y: number): void {
  const field = target.closest<Field>(TEXT_FIELDS);
  const link = target.closest<HTMLElement>('[data-link]')?.dataset.link ?? null;
  const message = messageAt(app, target);
  const conversation = conversationAt(target);
  const selection = field ? '' : selectedIn(target);
  const pointed: Pointed = {
    field: field && {
      text: field.value,
      marked: field.selectionStart !== field.selectionEnd && field.getAttribute('type') !== 'password',
      readOnly: field.readOnly || field.disabled,
    },
    link,
    selection,
    message: message && { ...message, continues: app.open?.continues(message) ?? false },
    conversation,
    streaming: app.open?.streaming ?? false,
  };
  app.menu.open(x, y, pointed, (command) => {
    if (field) void inField(app, field, command);
    else if (link && (command === 'open-link' || command === 'copy-link')) void (command === 'open-link' ? app.openLink(link) : app.export.copy(link, 'Link copied'));
    else if (command === 'copy-selection') void app.export.copy(selection);
    else if (conversation) ofConversation(app, conversation, command);
    else if (message) ofMessage(app, message, command);
  });
}

function conversationAt(target: Element): string | null {
  const item = target.closest('.sidebar .item')?.querySelector<HTMLElement>('[data-list-item][data-id]');
  return item?.dataset.id ?? null;
}

function messageAt(app: App, target: Element): Message | null {
  const article = target.closest<HTMLElement>('article.message');
  const message = article?.dataset.id ? app.open?.tree.get(article.dataset.id) : undefined;
  return message ?? null;
}

/** The selected text, if the click was inside the selection. */
function selectedIn(target: Element): string {
  const selection = document.getSelection();
  if (!selection || selection.isCollapsed || !selection.containsNode(target, true)) return '';
  return selection.toString();
}

async function inField(app: App, field: Field, command: Command): Promise<void> {
  field.focus({ preventScroll: true });
  if (command === 'select-all') field.select();
  else if (command === 'paste') await paste(app, field);
  // `execCommand` keeps the undo history of the field; setting its value would lose it.
  else document.execCommand(command);
}

async function paste(app: App, field: Field): Promise<void> {
  try {
    const text = await navigator.clipboard.readText();
    field.focus({ preventScroll: true });
    document.execCommand('insertText', false, text);
  } catch {
    app.toasts.show('The clipboard cannot be read from a menu here. Ctrl V pastes.');
  }
}

function ofMessage(app: App, message: Message, command: Command): void {
  const chat = app.open;
  if (!chat) return;
  if (command === 'copy-message') void app.export.copy(message.role === 'assistant' ? spoken(message.text, message.state) : message.text);
  else if (command === 'edit') chat.startEdit(message);
  else if (command === 'regenerate') void chat.regenerate(message);
  else if (command === 'continue') void chat.continueReply(message);
}

function ofConversation(app: App, conversation: string, command: Command): void {
  if (command === 'open') {
    if (app.narrow) app.sidebarOpen = false;
    void app.openConversation(conversation);
    void focusOn('composer');
  } else if (command === 'rename' || command === 'delete') app.menu.asked = { command, conversation };
  else if (command === 'copy-markdown') void app.export.copyConversation(conversation, 'markdown');
  else if (command === 'save-markdown') void app.export.saveConversation(conversation, 'markdown');
  else if (command === 'save-json') void app.export.saveConversation(conversation, 'json');
}
