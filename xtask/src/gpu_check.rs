//! `cargo xtask gpu-check`: builds what `tests/gpu/check.sh` takes to a machine with a GPU.
//!
//! The binaries are those that everybody gets: what a GPU needs beside them is its driver.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::workspace::Workspace;
use crate::{Result, process};

/// What cargo is asked for, and the names of the executables that it gives.
const BUILT: [(&[&str], &[&str]); 2] = [
    (
        &[
            "build",
            "-p",
            "reprise-cli",
            "-p",
            "models",
            "--features",
            "models/tiny",
        ],
        &["--bin=reprise-cli", "--example=synthetic"],
    ),
    (
        &["test", "--no-run", "-p", "models", "-p", "tests"],
        &["--test=suite", "--test=gpu"],
    ),
];

/// Builds and copies them, without what only a debugger reads, to `gpu-check` in the target folder.
pub(crate) fn gpu_check() -> Result<()> {
    let workspace = Workspace::open()?;
    let folder = workspace.target.join("gpu-check");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for (arguments, targets) in BUILT {
        let built = build(&workspace, arguments, targets)?;
        for target in targets {
            let name = target.split('=').next_back().unwrap_or(target);
            let (_, from) = built
                .iter()
                .find(|(built, _)| built == name)
                .ok_or_else(|| format!("cargo built no {name}"))?;
            let to = folder.join(name);
            fs::copy(from, &to).map_err(|error| format!("{}: {error}", from.display()))?;
            process::run(Command::new("strip").arg(&to))?;
        }
    }
    println!(
        "built; where the GPU is, run tests/gpu/check.sh {}",
        folder.display()
    );
    Ok(())
}

/// Names and paths of the executables that cargo builds.
fn build(
    workspace: &Workspace,
    arguments: &[&str],
    targets: &[&str],
) -> Result<Vec<(String, PathBuf)>> {
    let messages = process::output(
        Command::new("cargo")
            .args(arguments)
            .args(targets)
            .args(["--release", "--locked"])
            .args(["--message-format", "json-render-diagnostics"])
            .current_dir(&workspace.root),
    )?;
    let executable = |message: Value| {
        let name = message["target"]["name"].as_str()?.to_owned();
        Some((name, PathBuf::from(message["executable"].as_str()?)))
    };
    let messages = messages.lines();
    let messages = messages.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(messages.filter_map(executable).collect())
}
