//! Makes one permission per command, so that the window may call these and nothing else.

fn main() {
    let manifest = tauri_build::AppManifest::new().commands(&[
        "list_conversations",
        "create_conversation",
        "get_conversation",
        "rename_conversation",
        "delete_conversation",
        "undo_delete",
        "set_system_prompt",
        "set_sampling",
        "set_when_full",
        "set_active_leaf",
        "export_conversation",
        "save_conversation",
        "search",
        "send_message",
        "edit_message",
        "regenerate",
        "continue_reply",
        "shorten",
        "stop",
        "open_conversation",
        "warm",
        "draft",
        "preview_edit",
        "context_use",
        "raise_context",
        "list_models",
        "add_model",
        "choose_model",
        "load_model",
        "cache_stats",
        "clear_cache",
        "devices",
        "memory_stats",
        "release_memory",
        "plan_model",
        "memory_limits",
        "set_memory_limits",
        "reserve_context",
        "privacy_state",
        "protect",
        "unprotect",
        "change_secret",
        "unlock",
        "app_info",
        "open_link",
    ]);
    if let Err(error) =
        tauri_build::try_build(tauri_build::Attributes::new().app_manifest(manifest))
    {
        eprintln!("{error:#}");
        std::process::exit(1);
    }
}
