//! Child processes: run one, say what failed, or pass its output through while reading it.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Result;

/// `npm` is a script with another name on Windows.
pub(crate) const NPM: &str = if cfg!(windows) { "npm.cmd" } else { "npm" };
/// The Python launcher's name differs too.
pub(crate) const PYTHON: &str = if cfg!(windows) { "python" } else { "python3" };

/// Time between two calls of `look`.
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);

/// Runs to the end with inherited output.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .map_err(|error| format!("cannot start `{}`: {error}", shown(command)))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("`{}` ended with {status}", shown(command)))
    }
}

/// Runs a command to its end with inherited output, and calls `look` periodically.
pub(crate) fn watched(command: &mut Command, mut look: impl FnMut()) -> Result<()> {
    let mut child = command
        .spawn()
        .map_err(|error| format!("cannot start `{}`: {error}", shown(command)))?;
    loop {
        let ended = child.try_wait().map_err(|error| error.to_string())?;
        look();
        match ended {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(format!("`{}` ended with {status}", shown(command))),
            None => std::thread::sleep(BETWEEN_LOOKS),
        }
    }
}

/// Runs to the end and hands back standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let out = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot start `{}`: {error}", shown(command)))?;
    if out.status.success() {
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    } else {
        Err(format!("`{}` ended with {}", shown(command), out.status))
    }
}

/// Runs to the end, printing every line of standard output as it comes and showing it to `read`.
pub(crate) fn tee(command: &mut Command, mut read: impl FnMut(&str)) -> Result<()> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start `{}`: {error}", shown(command)))?;
    if let Some(stdout) = child.stdout.take() {
        let mut lines = BufReader::new(stdout);
        let mut line = Vec::new();
        // Bytes, not `lines()`: a test may print something that is not UTF-8.
        while lines.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            let text = String::from_utf8_lossy(&line);
            print!("{text}");
            read(text.trim_end());
            line.clear();
        }
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("`{}` ended with {status}", shown(command)))
    }
}

/// The first word of `program --version`-like output, if the program is there.
pub(crate) fn version(program: &str) -> Option<String> {
    let out = Command::new(program).arg("--version").output().ok()?;
    out.status
        .success()
        .then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

/// The command line as a person would type it.
fn shown(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}
