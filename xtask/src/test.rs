//! `cargo xtask test`: every check and every test, in one order, each step named with its time.
//!
//! Quick checks come first. What compiles Rust uses one set of packages and features (`SELECTION`), and one target
//! folder, so that the window toolkit is compiled once for clippy and once for everything else.

use std::process::Command;

use crate::steps::Steps;
use crate::workspace::{SELECTION, Workspace, data_folder};
use crate::{Result, arrows, model, setup, tracked, ui};

/// Runs it all.
pub(crate) fn test() -> Result<()> {
    let mut steps = Steps::new();
    steps.step("system packages", || setup::setup(true))?;
    let workspace = Workspace::open()?;
    let mut model = None;
    steps.step("default model", || {
        model = Some(model::fetch(&data_folder()?)?);
        Ok(())
    })?;
    let model = model.ok_or("no model")?;

    checks(&mut steps, &workspace)?;
    interface(&mut steps, &workspace)?;
    steps.command(
        "clippy",
        workspace
            .cargo("clippy")
            .arg("--locked")
            .args(SELECTION)
            // Every target; the window tests are named, since plain `cargo test` leaves them out.
            .args(["--lib", "--bins", "--tests", "--test", "window"])
            .args(["--", "-D", "warnings"]),
    )?;
    steps.command(
        "build",
        // The test targets take part, so that this build and the tests agree on the features of every dependency.
        workspace
            .cargo("build")
            .arg("--locked")
            .args(SELECTION)
            .args(["--lib", "--bins", "--tests", "--test", "window"]),
    )?;

    let with_paths = |command: &mut Command| {
        command
            .env("REPRISE_TEST_MODEL", &model)
            .env("REPRISE_TEST_APP", workspace.binary("debug", "reprise"))
            .env("REPRISE_TEST_CLI", workspace.binary("debug", "reprise-cli"));
        if let Some(chromium) = setup::chromium() {
            command.env("CHROMIUM", chromium);
        }
    };
    let mut rust = workspace.cargo("test");
    rust.arg("--locked").args(SELECTION);
    with_paths(&mut rust);
    steps.tests("Rust tests", &mut rust)?;

    let mut browser = workspace.npm(&["run", "test:browser"]);
    with_paths(&mut browser);
    steps.tests("UI in Chromium", &mut browser)?;

    let mut window = Command::new("xvfb-run");
    window
        .current_dir(&workspace.root)
        .args([
            "-a",
            "-s",
            "-screen 0 1366x900x24",
            "cargo",
            "test",
            "--locked",
        ])
        .args(SELECTION)
        .args(["--test", "window"]);
    with_paths(&mut window);
    steps.tests("the real window", &mut window)?;

    steps.summary();
    Ok(())
}

/// What needs no build.
fn checks(steps: &mut Steps, workspace: &Workspace) -> Result<()> {
    steps.command("format", workspace.cargo("fmt").args(["--all", "--check"]))?;
    steps.step("arrows", || arrows::check(workspace))?;
    steps.step("tracked files", || tracked::check(&workspace.root))
}

/// The UI: types, unit tests, build.
fn interface(steps: &mut Steps, workspace: &Workspace) -> Result<()> {
    steps.step("npm ci", || ui::install(workspace))?;
    steps.command("svelte-check", &mut workspace.npm(&["run", "check"]))?;
    steps.tests("UI unit tests", &mut workspace.npm(&["run", "test"]))?;
    steps.step("UI build", || ui::build(workspace))
}
