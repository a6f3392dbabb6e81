import { Channel, invoke } from '@tauri-apps/api/core';
import type { Backend, OnTurnEvent } from './backend';
import { wholeTexts } from './text';
import type { ApiError, TurnEvent } from './types';

/** The real backend: one line per command of the shell. */
export function tauriBackend(): Backend {
  return {
    listConversations: () => call('list_conversations'),
    createConversation: (systemPrompt, model) => call('create_conversation', { systemPrompt, model }),
    getConversation: (id) => call('get_conversation', { id }),
    renameConversation: (id, title) => call('rename_conversation', { id, title }),
    deleteConversation: (id) => call('delete_conversation', { id }),
    undoDelete: (id) => call('undo_delete', { id }),
    setSystemPrompt: (id, text) => call('set_system_prompt', { id, text }),
    setSampling: (id, sampling) => call('set_sampling', { id, sampling }),
    setWhenFull: (id, whenFull) => call('set_when_full', { id, whenFull }),
    setConversationModel: (id, model) => call('set_conversation_model', { id, model }),
    setActiveLeaf: (conversation, message) => call('set_active_leaf', { conversation, message }),
    search: (text) => call('search', { text }),
    unsent: () => call('unsent'),
    keepUnsent: (unsent) => call('keep_unsent', { unsent }),

    sendMessage: (conversation, parent, text, onEvent) => turn('send_message', { conversation, parent, text }, onEvent),
    editMessage: (conversation, message, text, onEvent) => turn('edit_message', { conversation, message, text }, onEvent),
    regenerate: (conversation, message, onEvent) => turn('regenerate', { conversation, message }, onEvent),
    continueReply: (conversation, message, onEvent) => turn('continue_reply', { conversation, message }, onEvent),
    shorten: (conversation, how, onEvent) => turn('shorten', { conversation, how }, onEvent),
    stop: (conversation) => call('stop', { conversation }),

    openConversation: (conversation) => call('open_conversation', { conversation }),
    warm: (conversation) => call('warm', { conversation }),
    draft: (conversation, message, text) => call('draft', { conversation, message, text }),
    previewEdit: (conversation, message, text) => call('preview_edit', { conversation, message, text }),
    previewSystemPrompt: (conversation, text) => call('preview_system_prompt', { conversation, text }),
    previewBeginning: (systemPrompt, text) => call('preview_beginning', { systemPrompt, text }),
    contextUse: (conversation) => call('context_use', { conversation }),
    raiseContext: () => call('raise_context'),

    listModels: () => call('list_models'),
    addModel: (path) => call('add_model', { path }),
    removeModel: (name, deleteFile) => call('remove_model', { name, deleteFile }),
    chooseModel: () => call('choose_model'),
    loadModel: (name) => call('load_model', { name }),

    planModel: (name, context) => call('plan_model', { name, context }),
    devices: () => call('devices'),
    memoryStats: () => call('memory_stats'),
    releaseMemory: () => call('release_memory'),
    memoryLimits: () => call('memory_limits'),
    setMemoryLimits: (limits) => call('set_memory_limits', { limits }),
    reserveContext: (model, wholeContext) => call('reserve_context', { model, wholeContext }),

    privacyState: () => call('privacy_state'),
    protect: (secret) => call('protect', { secret }),
    unprotect: () => call('unprotect'),
    changeSecret: (current, secret) => call('change_secret', { current, secret }),
    unlock: (passphrase) => call('unlock', { passphrase }),

    view: () => call('view'),
    setZoom: (zoom) => call('set_zoom', { zoom }),

    cacheStats: () => call('cache_stats'),
    clearCache: () => call('clear_cache'),
    exportConversation: (id, format) => call('export_conversation', { id, format }),
    saveConversation: (id, format) => call('save_conversation', { id, format }),
    appInfo: () => call('app_info'),
    openLink: (url) => call('open_link', { url }),
    pageDrawn: () => call('page_drawn'),
  };
}

/** True inside the shell's webview. */
export function insideTauri(): boolean {
  return '__TAURI_INTERNALS__' in globalThis;
}

async function call<T>(command: string, args?: Record<string, unknown>): Promise<T> {
  return await invoke<T>(command, wholeTexts(args)).catch((cause: unknown) => {
    throw asRefusal(cause);
  });
}

/** If the arguments cannot be parsed, Tauri itself rejects with a plain string before the command runs. */
function asRefusal(cause: unknown): unknown {
  return typeof cause === 'string' ? { code: 'invalid_argument', message: cause } satisfies ApiError : cause;
}

// The Channel class puts messages back into order: small ones and large ones travel by different ways.
async function turn(command: string, args: Record<string, unknown>, onEvent: OnTurnEvent): Promise<void> {
  const channel = new Channel<TurnEvent>();
  channel.onmessage = onEvent;
  await call(command, { ...args, channel });
}
