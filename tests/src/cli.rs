//! The `reprise-cli` binary as a process.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

/// `reprise-cli` over one data folder, with `--json`.
pub struct Cli {
    data_dir: PathBuf,
    environment: Vec<(String, OsString)>,
}

/// A command that has not ended, and its output so far.
pub struct Running {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Cli {
    /// The binary over `data_dir`.
    pub fn new(data_dir: &Path) -> Self {
        Self {
            data_dir: data_dir.to_owned(),
            environment: Vec::new(),
        }
    }

    /// With a variable in the environment of every command.
    pub fn with(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// Runs a command to its end; it must succeed. One value for each line it printed.
    pub fn run(&self, args: &[&str]) -> Vec<Value> {
        let output = self.command(args).output().expect("reprise-cli starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {errors}");
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(|line| {
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))
            })
            .collect()
    }

    /// Runs a command that must fail; what it says why.
    pub fn refused(&self, args: &[&str]) -> String {
        let output = self.command(args).output().expect("reprise-cli starts");
        assert!(!output.status.success(), "{args:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Starts a command.
    pub fn start(&self, args: &[&str]) -> Running {
        let mut child = self
            .command(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("reprise-cli starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Running { child, lines }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command
            .arg("--data-dir")
            .arg(&self.data_dir)
            .arg("--json")
            .args(args)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }
}

/// The lines it prints, until it has ended.
impl Iterator for Running {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        let line = self.lines.next()?.ok()?;
        Some(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}")))
    }
}

impl Running {
    /// Ends it at once, as `kill -9` does, and waits until it is gone.
    pub fn kill(mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("wait");
    }
}

/// The engine's program, beside that of the command line.
pub fn engine_program() -> PathBuf {
    let path = binary().with_file_name(format!("reprise-engine{}", std::env::consts::EXE_SUFFIX));
    assert!(
        path.is_file(),
        "{path:?} is missing: run `cargo build -p reprise-engine` first"
    );
    path
}

/// Processes whose command line begins with `program` and names `folder`. Linux only.
pub fn processes(program: &str, folder: &Path) -> Vec<u32> {
    let folder = folder.as_os_str().as_encoded_bytes();
    let listed = std::fs::read_dir("/proc").expect("processes are listed");
    let pids = listed.flatten().filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let command = std::fs::read(entry.path().join("cmdline")).ok()?;
        let mut words = command.split(|byte| *byte == 0);
        let name = String::from_utf8_lossy(words.next()?).into_owned();
        let is_it = Path::new(&name).file_name()? == program && words.any(|word| word == folder);
        is_it.then_some(pid)
    });
    pids.collect()
}

/// `REPRISE_TEST_CLI`, or the binary beside this test's folder.
fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("REPRISE_TEST_CLI") {
        return path.into();
    }
    let test = std::env::current_exe().expect("path of the test");
    let folder = test.ancestors().nth(2).expect("target folder");
    let path = folder.join(format!("reprise-cli{}", std::env::consts::EXE_SUFFIX));
    assert!(
        path.is_file(),
        "{path:?} is missing: run `cargo build -p reprise-cli` first"
    );
    path
}
