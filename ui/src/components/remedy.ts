import type { App } from '../state/app.svelte';
import type { Chat } from '../state/chat.svelte';
import type { Remedy } from '../state/problem';
import { focusOn } from './shortcuts';

/** Runs the action of a remedy button in the conversation `chat`. */
export function applyRemedy(remedy: Remedy, chat: Chat, app: App): void {
  switch (remedy) {
    case 'choose_model':
      app.models.choosing = true;
      break;
    case 'new_conversation':
      app.newConversation();
      break;
    case 'edit_earlier':
      chat.startEditLast();
      break;
    case 'edit_system_prompt':
      app.settingsOpen = true;
      void focusOn('system-prompt');
      break;
    case 'larger_context':
      void chat.raiseContext();
      break;
    case 'compact':
    case 'drop_oldest':
      void chat.shorten(remedy);
      break;
    case 'reload':
      chat.clearProblem();
      void chat.load();
      break;
    case 'retry':
      chat.tryAgain();
      break;
  }
}
