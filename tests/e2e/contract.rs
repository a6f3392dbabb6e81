//! The contract of the backend in the real window: runs the scenarios that the fake backend passes in the UI's unit
//! tests against the shell, the engine and a real model, so that the fake backend is no more lenient than the product.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use store::{DataFolder, History, Passphrase, Secret};
use tests::Subject;

use crate::window::Window;

/// Timeout of one scenario. The page has a shorter one of its own, which it reports.
const PATIENCE: Duration = Duration::from_secs(180);

/// The scenarios of `ui/tests/contract`, bundled once into one script.
fn script() -> &'static str {
    static SCRIPT: OnceLock<String> = OnceLock::new();
    SCRIPT.get_or_init(|| {
        let ui = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../ui"));
        let built = Command::new("node")
            .args(["node_modules/vite/bin/vite.js", "build"])
            .args(["--config", "vite.contract.config.ts"])
            .current_dir(&ui)
            .output()
            .expect("node is installed");
        let errors = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "the contract is built: {errors}");
        std::fs::read_to_string(ui.join("dist-contract/contract.js")).expect("the built contract")
    })
}

/// Runs the scenarios that have the start `start`, and reports each by name with its outcome.
async fn keep_contract(window: &Window, start: &str) {
    window
        .script(
            &format!("{}\n//# sourceURL=contract.js", script()),
            Value::Null,
        )
        .await;
    let only = std::env::var("REPRISE_TEST_SCENARIO").unwrap_or_default();
    window
        .script(
            "globalThis.__runContract(arguments[0][0], arguments[0][1])",
            json!([start, only]),
        )
        .await;
    let (mut told, mut last) = (0, Instant::now());
    let mut broken = Vec::new();
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let progress = window
            .script("return globalThis.__contract", Value::Null)
            .await;
        let outcomes = progress["outcomes"].as_array().cloned().unwrap_or_default();
        for outcome in &outcomes[told..] {
            let name = outcome["name"].as_str().unwrap_or_default();
            let seconds = outcome["ms"].as_f64().unwrap_or_default() / 1000.0;
            match outcome["problem"].as_str() {
                None => println!("ok     {name} ({seconds:.1} s)"),
                Some(problem) => {
                    println!("FAILED {name} ({seconds:.1} s)\n       {problem}");
                    broken.push(format!("{name}: {problem}"));
                }
            }
            last = Instant::now();
        }
        told = outcomes.len();
        if progress["done"] == true {
            break;
        }
        assert!(last.elapsed() < PATIENCE, "it does not go on: {progress}");
    }
    assert!(told > 0, "no scenario begins with {start}");
    assert!(
        broken.is_empty(),
        "the shell does not keep {} of {told}:\n{}",
        broken.len(),
        broken.join("\n")
    );
}

/// A data folder with the default model and a second one.
fn two_models(home: &Path) -> DataFolder {
    let folder = DataFolder::open(Some(home.join("reprise"))).expect("data folder");
    Subject::Real.install(&folder.models_path());
    Subject::TINY.install(&folder.models_path());
    folder
}

#[tokio::test]
async fn the_shell_keeps_the_contract_that_the_ui_is_tested_with() {
    let home = tempfile::tempdir().expect("folder");
    drop(two_models(home.path()));
    let window = Window::open(home.path()).await;
    keep_contract(&window, "ready").await;
    window.quit().await;
}

#[tokio::test]
async fn the_shell_keeps_the_contract_while_it_is_locked() {
    let home = tempfile::tempdir().expect("folder");
    let folder = two_models(home.path());
    let secret = Secret::Passphrase {
        passphrase: Passphrase::from("open sesame".to_owned()),
    };
    let mut history = History::open(&folder.history_path()).expect("history");
    history.protect(&secret).expect("encrypted");
    history.finish_privacy().expect("no blocks");
    drop((history, folder));
    let window = Window::start(home.path()).await;
    window.find("unlock-page").await;
    keep_contract(&window, "locked").await;
    window.quit().await;
}

#[tokio::test]
async fn the_shell_keeps_the_contract_without_a_model() {
    let home = tempfile::tempdir().expect("folder");
    let window = Window::open(home.path()).await;
    keep_contract(&window, "no_model").await;
    window.quit().await;
}
