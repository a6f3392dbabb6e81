//! `cache`: the block store on disk. No model is loaded.

use std::path::PathBuf;

use serde_json::json;
use store::{CacheStats, VerifyReport};

use crate::app::App;
use crate::arguments::CacheCommand;
use crate::error::Result;
use crate::output::{Output, bytes, grouped};

pub(crate) fn run(command: CacheCommand, data_dir: Option<PathBuf>, output: &Output) -> Result<()> {
    let app = App::open(data_dir, None)?;
    let mut store = app.block_store()?;
    match command {
        CacheCommand::Stats => {
            let stats = store.stats();
            output.line(&stats, || sheet(&stats))
        }
        CacheCommand::Verify => {
            let report = store.verify();
            output.line(&report, || verdict(report))
        }
        CacheCommand::Clear => {
            let before = store.stats();
            store.clear();
            let freed = before.file_bytes.saturating_sub(store.stats().file_bytes);
            let cleared =
                json!({ "cleared": true, "num_blocks": before.num_blocks, "freed_bytes": freed });
            output.line(&cleared, || {
                format!(
                    "dropped {} blocks, {} given back",
                    grouped(before.num_blocks),
                    bytes(freed)
                )
            })
        }
    }
}

fn sheet(stats: &CacheStats) -> String {
    let mut text = format!(
        "{} blocks, {} live in {} of files; may use {}",
        grouped(stats.num_blocks),
        bytes(stats.live_bytes),
        bytes(stats.file_bytes),
        bytes(stats.budget_bytes)
    );
    for pool in &stats.pools {
        let short = pool.fingerprint.get(..12).unwrap_or(&pool.fingerprint);
        text.push_str(&format!(
            "\n{short}  {}  {} blocks  {}",
            pool.label,
            grouped(pool.num_blocks),
            bytes(pool.bytes)
        ));
    }
    text
}

fn verdict(report: VerifyReport) -> String {
    match report.bad {
        0 => format!("{} blocks, all good", grouped(report.checked)),
        bad => format!(
            "{} of {} blocks were bad and are dropped; their tokens will be computed again",
            grouped(bad),
            grouped(report.checked)
        ),
    }
}
