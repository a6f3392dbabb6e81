//! `reprise-cli` as a process, over a temporary data folder with a tiny model in it.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use models::Architecture;
use models::tiny::{self, TinyModel};
use serde_json::Value;
use tempfile::TempDir;

pub const MODEL: &str = "tiny";

/// A data folder that goes with the test.
pub struct Folder(TempDir);

impl Folder {
    pub fn empty() -> Folder {
        Folder(tempfile::tempdir().expect("temporary folder"))
    }

    pub fn with_model() -> Folder {
        let folder = Folder::empty();
        let models = folder.path().join("models");
        std::fs::create_dir(&models).expect("models folder");
        tiny::write(
            &models.join("tiny.gguf"),
            &TinyModel::new(Architecture::Llama, 1),
        )
        .expect("tiny model");
        folder
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_reprise-cli"));
        command
            .arg("--data-dir")
            .arg(self.path())
            .args(arguments)
            .stdin(Stdio::null())
            .env_remove("RUST_LOG")
            .env_remove("REPRISE_PASSPHRASE")
            .env_remove("REPRISE_NEW_PASSPHRASE");
        command
    }

    /// To its end, whatever that is.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments)
            .output()
            .expect("reprise-cli starts")
    }

    /// To a good end: the text on standard output.
    pub fn text(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// To a good end, with `--json`: one value for each line.
    pub fn json(&self, arguments: &[&str]) -> Vec<Value> {
        lines(&self.text(&[&["--json"], arguments].concat()))
    }

    /// The last line of `json`.
    pub fn last(&self, arguments: &[&str]) -> Value {
        self.json(arguments).pop().expect("a line")
    }

    /// A new conversation's id.
    pub fn conversation(&self) -> String {
        string(&self.last(&["chat", "new"]), "conversation")
    }

    /// A short greedy reply: its finished line.
    pub fn send(&self, conversation: &str, text: &str) -> Value {
        self.last(&[
            "chat",
            "send",
            conversation,
            text,
            "--greedy",
            "--max-tokens",
            "12",
        ])
    }

    pub fn messages(&self, conversation: &str) -> Vec<Value> {
        let shown = self.last(&["chat", "show", conversation]);
        shown["messages"].as_array().expect("messages").clone()
    }

    pub fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("reprise-cli starts")
    }
}

pub fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}

pub fn string(value: &Value, field: &str) -> String {
    value[field]
        .as_str()
        .unwrap_or_else(|| panic!("no {field} in {value}"))
        .to_owned()
}

pub fn number(value: &Value, field: &str) -> u64 {
    value[field]
        .as_u64()
        .unwrap_or_else(|| panic!("no {field} in {value}"))
}

/// Resident, restored, computed; they add up to the prompt.
pub fn counts(finished: &Value) -> [u64; 3] {
    assert_eq!(finished["event"], "finished", "{finished}");
    let counts =
        ["resident", "restored", "computed"].map(|field| number(&finished["prefill"], field));
    assert_eq!(
        counts.iter().sum::<u64>(),
        number(finished, "prompt_tokens"),
        "{finished}"
    );
    counts
}

/// About 310 tokens of the tiny model.
pub fn long_text() -> String {
    "the cache of a token block and the model that can use it ".repeat(20)
}
