import type {
  AppInfo, CacheStats, ContextUse, Conversation, ConversationId, ConversationTree, DeviceList, EditCost, ExportFormat, MemoryLimits, MemoryPlan, MemoryStats,
  MessageId, ModelEntry, PrivacyState, Released, RemovedModel, Sampling, SearchHit, Secret, Shorten, TurnEvent, Unsent, View, WhenFull,
} from './types';

/** Receives the events of one turn; the last one is `finished`, `context_full` or `error`. */
export type OnTurnEvent = (event: TurnEvent) => void;

/** Everything the interface may ask of the shell. Every method rejects with an `ApiError`. */
export interface Backend {
  listConversations(): Promise<Conversation[]>;
  createConversation(systemPrompt: string | null, model: string | null): Promise<Conversation>;
  getConversation(id: ConversationId): Promise<ConversationTree>;
  renameConversation(id: ConversationId, title: string): Promise<void>;
  deleteConversation(id: ConversationId): Promise<void>;
  undoDelete(id: ConversationId): Promise<void>;
  setSystemPrompt(id: ConversationId, text: string): Promise<void>;
  setSampling(id: ConversationId, sampling: Sampling): Promise<void>;
  setWhenFull(id: ConversationId, whenFull: WhenFull): Promise<void>;
  /** Sets the model that answers from now on; existing replies keep the model that wrote them. */
  setConversationModel(id: ConversationId, model: string): Promise<void>;
  setActiveLeaf(conversation: ConversationId, message: MessageId): Promise<void>;
  search(text: string): Promise<SearchHit[]>;
  /** What was written and not sent, in all conversations and on the blank page. */
  unsent(): Promise<Unsent[]>;
  /** Keeps what stands in a place now; an empty text empties it. What becomes a message is emptied with it. */
  keepUnsent(unsent: Unsent): Promise<void>;

  sendMessage(conversation: ConversationId, parent: MessageId | null, text: string, onEvent: OnTurnEvent): Promise<void>;
  editMessage(conversation: ConversationId, message: MessageId, text: string, onEvent: OnTurnEvent): Promise<void>;
  regenerate(conversation: ConversationId, message: MessageId, onEvent: OnTurnEvent): Promise<void>;
  continueReply(conversation: ConversationId, message: MessageId, onEvent: OnTurnEvent): Promise<void>;
  /** Goes on in a shorter branch of the active one. */
  shorten(conversation: ConversationId, how: Shorten, onEvent: OnTurnEvent): Promise<void>;
  stop(conversation: ConversationId): Promise<void>;

  /** The conversation that is looked at from now on, or none: it comes into memory and is the last to leave it. */
  openConversation(conversation: ConversationId | null): Promise<void>;
  /** Brings a conversation into memory in case that it is opened. */
  warm(conversation: ConversationId): Promise<void>;
  /** Reads ahead what is being typed instead of `message`, or after the active leaf; an empty text discards it. */
  draft(conversation: ConversationId, message: MessageId | null, text: string): Promise<void>;
  previewEdit(conversation: ConversationId, message: MessageId | null, text: string): Promise<EditCost>;
  /** The cost of continuing the conversation with another system prompt. */
  previewSystemPrompt(conversation: ConversationId, text: string): Promise<EditCost>;
  /** The cost of beginning a conversation with this system prompt and first message. */
  previewBeginning(systemPrompt: string, text: string): Promise<EditCost>;
  contextUse(conversation: ConversationId): Promise<ContextUse>;
  /** Gives the context the memory that the model could use. */
  raiseContext(): Promise<void>;

  listModels(): Promise<ModelEntry[]>;
  /** Accepts `~` and `file://`. If a model of the same name has lost its file, the new path replaces the old one. */
  addModel(path: string): Promise<ModelEntry>;
  /** Forgets a model that was added by its path. The file of a model in the models folder is deleted, but only with `deleteFile`. */
  removeModel(name: string, deleteFile: boolean): Promise<RemovedModel>;
  /** A path from the system's file dialog; null when the person turned away. */
  chooseModel(): Promise<string | null>;
  /** Loads a model and makes it the default for new conversations. */
  loadModel(name: string): Promise<void>;

  /** What a model would take in memory with this many tokens of context, or its own; it is not loaded. */
  planModel(name: string, context: number | null): Promise<MemoryPlan>;
  devices(): Promise<DeviceList>;
  memoryStats(): Promise<MemoryStats>;
  /** Saves everything and gives back model and working pool; the next turn loads them again. */
  releaseMemory(): Promise<Released>;
  memoryLimits(): Promise<MemoryLimits>;
  setMemoryLimits(limits: MemoryLimits): Promise<void>;
  /** Whether a model takes the memory of its whole context when it is loaded, and not as it is used. */
  reserveContext(model: string, wholeContext: boolean): Promise<void>;

  privacyState(): Promise<PrivacyState>;
  /** Encrypts conversations on disk; the cache follows in the background. */
  protect(secret: Secret): Promise<PrivacyState>;
  unprotect(): Promise<PrivacyState>;
  /** `current` is the passphrase until now, if it is one. */
  changeSecret(current: string | null, secret: Secret): Promise<PrivacyState>;
  /** Opens the application; until then everything else is refused with the code `locked`. */
  unlock(passphrase: string): Promise<void>;

  /** The saved state of the window: zoom and open conversation. */
  view(): Promise<View>;
  /** Sets the zoom factor of this window and of later ones; 1 is the usual size. */
  setZoom(zoom: number): Promise<void>;

  cacheStats(): Promise<CacheStats>;
  clearCache(): Promise<void>;
  exportConversation(id: ConversationId, format: ExportFormat): Promise<string>;
  /** Asks where in the system's dialog and writes the export there; null when the person turned away. */
  saveConversation(id: ConversationId, format: ExportFormat): Promise<string | null>;
  appInfo(): Promise<AppInfo>;
  /** Opens an address in the system's browser, never in the webview. */
  openLink(url: string): Promise<void>;
  /** The page is drawn, so the window may be shown. */
  pageDrawn(): Promise<void>;
}
