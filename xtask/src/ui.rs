//! The UI's two slow steps, each skipped while nothing they read has changed.
//!
//! Digests of contents decide, not times: a checkout or a branch switch touches times without changing anything.

use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::workspace::Workspace;
use crate::{Result, process};

/// Folders of the UI that are outputs, not inputs.
const OUTPUTS: [&str; 6] = [
    "node_modules",
    "dist",
    "dist-fake",
    "dist-contract",
    "test-results",
    "coverage",
];

/// `npm ci`, unless the installed packages are those of the lock file.
pub(crate) fn install(workspace: &Workspace) -> Result<()> {
    let ui = workspace.ui();
    let stamp = ui.join("node_modules/.reprise-installed");
    let mut hash = Sha256::new();
    hash.update(process::version("node").unwrap_or_default());
    for file in ["package-lock.json", "package.json"] {
        hash.update(fs::read(ui.join(file)).map_err(|error| format!("ui/{file}: {error}"))?);
    }
    once(&stamp, hash, "the installed packages are current", || {
        process::run(&mut workspace.npm(&["ci", "--no-audit", "--no-fund"]))
    })
}

/// `npm run build` into `ui/dist`, unless it was made from these very files.
pub(crate) fn build(workspace: &Workspace) -> Result<()> {
    let ui = workspace.ui();
    let stamp = ui.join("node_modules/.reprise-built");
    let mut hash = Sha256::new();
    add_folder(&ui, &mut hash)?;
    if !ui.join("dist/index.html").is_file() {
        let _ = fs::remove_file(&stamp);
    }
    once(&stamp, hash, "ui/dist is current", || {
        process::run(&mut workspace.npm(&["run", "build"]))
    })
}

/// Does `work` and leaves the digest at `stamp`, unless the same digest stands there.
fn once(
    stamp: &Path,
    hash: Sha256,
    current: &str,
    work: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let digest = format!("{:x}", hash.finalize());
    if fs::read_to_string(stamp).is_ok_and(|old| old == digest) {
        println!("{current}");
        return Ok(());
    }
    work()?;
    fs::write(stamp, digest).map_err(|error| format!("{}: {error}", stamp.display()))
}

/// Adds names and contents below `dir`, in the order of their names.
fn add_folder(dir: &Path, hash: &mut Sha256) -> Result<()> {
    let read = fs::read_dir(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let mut paths: Vec<_> = read.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if OUTPUTS.contains(&name.as_ref()) || name.ends_with(".log") {
            continue;
        }
        if path.is_dir() {
            add_folder(&path, hash)?;
        } else {
            let bytes = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            hash.update(path.to_string_lossy().as_bytes());
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        }
    }
    Ok(())
}
