//! The UI's types are the Rust types: this test writes them, and fails where the committed ones differ.
//!
//! After a change of a type: `REPRISE_EXPORT_BINDINGS=1 cargo test -p reprise --features custom-protocol bindings`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use engine::{
    ContextUse, DeviceList, EditCost, MemoryLimits, MemoryPlan, MemoryStats, ModelEntry,
    PrivacyState, Released, RemovedModel, TurnEvent,
};
use store::{CacheStats, Format, SearchHit, Secret, Unsent};
use ts_rs::{Config, TS};

use crate::api_error::ApiError;
use crate::commands::about::AppInfo;
use crate::commands::conversations::ConversationTree;
use crate::commands::view::View;

/// Everything that crosses between the shell and the window; what these name comes along.
fn export(dir: &Path) -> Result<(), ts_rs::ExportError> {
    // Sizes and times in milliseconds stay far below 2^53, so that a JavaScript number holds them exactly.
    let config = Config::new().with_out_dir(dir).with_large_int("number");
    ApiError::export_all(&config)?;
    AppInfo::export_all(&config)?;
    CacheStats::export_all(&config)?;
    ContextUse::export_all(&config)?;
    ConversationTree::export_all(&config)?;
    DeviceList::export_all(&config)?;
    EditCost::export_all(&config)?;
    Format::export_all(&config)?;
    MemoryLimits::export_all(&config)?;
    MemoryPlan::export_all(&config)?;
    MemoryStats::export_all(&config)?;
    ModelEntry::export_all(&config)?;
    PrivacyState::export_all(&config)?;
    Released::export_all(&config)?;
    RemovedModel::export_all(&config)?;
    SearchHit::export_all(&config)?;
    Secret::export_all(&config)?;
    TurnEvent::export_all(&config)?;
    Unsent::export_all(&config)?;
    View::export_all(&config)
}

#[test]
fn the_committed_bindings_are_the_rust_types() {
    let temp = tempfile::tempdir().expect("a folder");
    export(temp.path()).expect("bindings");
    let exported = files(temp.path());
    let committed_dir =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../ui/src/backend/bindings");
    if std::env::var_os("REPRISE_EXPORT_BINDINGS").is_some() {
        replace(&committed_dir, &exported);
    }
    let committed = files(&committed_dir);
    assert_eq!(
        committed.keys().collect::<Vec<_>>(),
        exported.keys().collect::<Vec<_>>(),
        "files in ui/src/backend/bindings (export them: see this file)"
    );
    for (name, text) in &exported {
        assert_eq!(
            &committed[name], text,
            "{name} differs (export it: see this file)"
        );
    }
}

/// name → text
fn files(dir: &Path) -> BTreeMap<String, String> {
    let Ok(entries) = fs::read_dir(dir) else {
        return BTreeMap::new();
    };
    let read = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.to_owned();
        // A checkout on Windows may have turned the line ends.
        Some((name, fs::read_to_string(&path).ok()?.replace("\r\n", "\n")))
    };
    entries
        .filter_map(|entry| read(entry.ok()?.path()))
        .collect()
}

fn replace(dir: &Path, exported: &BTreeMap<String, String>) {
    fs::create_dir_all(dir).expect("the folder of the bindings");
    for stale in files(dir)
        .keys()
        .filter(|name| !exported.contains_key(*name))
    {
        fs::remove_file(dir.join(stale)).expect("a stale binding goes");
    }
    for (name, text) in exported {
        fs::write(dir.join(name), text).expect("a binding is written");
    }
}
