import type { Backend } from '../backend/backend';
import { writeClipboard } from './clipboard';
import type { Toasts } from './toasts.svelte';
import type { ConversationId, ExportFormat } from './types';

/** Copies texts and conversations to the clipboard, and saves conversations as files. A toast reports each success. */
export class Export {
  constructor(
    private readonly backend: Backend,
    private readonly toasts: Toasts,
    private readonly fail: (cause: unknown) => void,
  ) {}

  async copy(text: string, said = 'Copied'): Promise<void> {
    this.toasts.show((await writeClipboard(text)) ? said : 'The clipboard is not available');
  }

  async copyConversation(id: ConversationId, format: ExportFormat): Promise<void> {
    try {
      const text = await this.backend.exportConversation(id, format);
      await this.copy(text, format === 'json' ? 'Copied as JSON' : 'Copied as Markdown');
    } catch (cause) {
      this.fail(cause);
    }
  }

  async saveConversation(id: ConversationId, format: ExportFormat): Promise<void> {
    try {
      const path = await this.backend.saveConversation(id, format);
      if (path !== null) this.toasts.show(`Saved to ${path}`);
    } catch (cause) {
      this.fail(cause);
    }
  }
}
