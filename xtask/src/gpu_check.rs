//! `cargo xtask gpu-check`: builds what `tests/gpu/check.sh` takes to a machine with a GPU.
//!
//! The binaries are those that everybody gets: what a GPU needs beside them is its driver.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::workspace::Workspace;
use crate::{Result, process};

/// Binaries of the release build, and the packages, features and targets that make them.
const BUILT: [(&str, &[&str]); 4] = [
    (
        "reprise-cli",
        &["build", "-p", "reprise-cli", "--bin", "reprise-cli"],
    ),
    (
        "synthetic",
        &[
            "build",
            "-p",
            "models",
            "--features",
            "tiny",
            "--example",
            "synthetic",
        ],
    ),
    (
        "suite",
        &["test", "--no-run", "-p", "models", "--test", "suite"],
    ),
    ("gpu", &["test", "--no-run", "-p", "tests", "--test", "gpu"]),
];

/// Builds and copies them, without what only a debugger reads, to `gpu-check` in the target folder.
pub(crate) fn gpu_check() -> Result<()> {
    let workspace = Workspace::open()?;
    let folder = workspace.target.join("gpu-check");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for (name, arguments) in BUILT {
        let built = build(&workspace, name, arguments)?;
        let to = folder.join(name);
        fs::copy(&built, &to).map_err(|error| format!("{}: {error}", built.display()))?;
        process::run(Command::new("strip").arg(&to))?;
    }
    println!(
        "built; where the GPU is, run tests/gpu/check.sh {}",
        folder.display()
    );
    Ok(())
}

/// Path of the executable that cargo says it has built under that name.
fn build(workspace: &Workspace, name: &str, arguments: &[&str]) -> Result<PathBuf> {
    let messages = process::output(
        Command::new("cargo")
            .args(arguments)
            .args([
                "--release",
                "--locked",
                "--message-format",
                "json-render-diagnostics",
            ])
            .current_dir(&workspace.root),
    )?;
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .ok_or_else(|| format!("cargo built no {name}"))
}
