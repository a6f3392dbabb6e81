//! Everything the window may ask for, one noun a file. The names here, in `build.rs` and in `capabilities/main.json`
//! are the same list (tested below): a command that is missing from one of them cannot be called.

pub(crate) mod about;
mod cache;
pub(crate) mod conversations;
mod links;
mod memory;
mod models;
mod page;
mod privacy;
mod turns;
pub(crate) mod view;

use tauri::ipc::Invoke;

/// Calls the command that a message from the window names.
pub(crate) fn handler() -> impl Fn(Invoke) -> bool + Send + Sync + 'static {
    tauri::generate_handler![
        conversations::list_conversations,
        conversations::create_conversation,
        conversations::get_conversation,
        conversations::rename_conversation,
        conversations::delete_conversation,
        conversations::undo_delete,
        conversations::set_system_prompt,
        conversations::set_sampling,
        conversations::set_when_full,
        conversations::set_conversation_model,
        conversations::set_active_leaf,
        conversations::unsent,
        conversations::keep_unsent,
        conversations::export_conversation,
        conversations::save_conversation,
        conversations::search,
        turns::send_message,
        turns::edit_message,
        turns::regenerate,
        turns::continue_reply,
        turns::shorten,
        turns::stop,
        turns::open_conversation,
        turns::warm,
        turns::draft,
        turns::preview_edit,
        turns::preview_beginning,
        turns::preview_system_prompt,
        turns::context_use,
        turns::raise_context,
        models::list_models,
        models::add_model,
        models::remove_model,
        models::choose_model,
        models::load_model,
        cache::cache_stats,
        cache::clear_cache,
        memory::devices,
        memory::memory_stats,
        memory::release_memory,
        memory::plan_model,
        memory::memory_limits,
        memory::set_memory_limits,
        memory::reserve_context,
        privacy::privacy_state,
        privacy::protect,
        privacy::unprotect,
        privacy::change_secret,
        privacy::unlock,
        view::view,
        view::set_zoom,
        about::app_info,
        links::open_link,
        page::page_drawn,
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    /// The words between quotes, one a line, after `start`.
    fn listed(source: &str, start: &str, end: &str) -> Vec<String> {
        let from = source.find(start).expect("the list begins") + start.len();
        let to = from + source[from..].find(end).expect("the list ends");
        let name = |line: &str| {
            line.trim()
                .trim_end_matches(',')
                .trim_matches('"')
                .rsplit("::")
                .next()
                .map(str::to_owned)
        };
        source[from..to]
            .lines()
            .filter(|line| !line.trim().is_empty())
            .filter_map(name)
            .collect()
    }

    /// The commands that the UI's backend calls, in source order.
    fn called() -> Vec<String> {
        let source = include_str!("../../ui/src/backend/tauri.ts");
        let calls = ["call('", "turn('"].map(|call| source.split(call).skip(1));
        let name = |rest: &str| rest.split('\'').next().map(str::to_owned);
        calls.into_iter().flatten().filter_map(name).collect()
    }

    #[test]
    fn every_command_is_a_method_of_the_backend_and_every_method_a_command() {
        let mut handled = listed(include_str!("commands.rs"), "generate_handler![", "]");
        let mut called = called();
        handled.sort();
        called.sort();
        assert_eq!(handled, called);
    }

    #[test]
    fn handler_manifest_and_capability_name_the_same_commands() {
        let handled = listed(include_str!("commands.rs"), "generate_handler![", "]");
        let declared = listed(include_str!("../build.rs"), "commands(&[", "]");
        let capability: Value =
            serde_json::from_str(include_str!("../capabilities/main.json")).expect("JSON");
        let allowed: Vec<_> = capability["permissions"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let as_permissions: Vec<_> = handled
            .iter()
            .map(|name| format!("allow-{}", name.replace('_', "-")))
            .collect();
        assert_eq!(handled, declared);
        assert_eq!(as_permissions, allowed);
    }
}
