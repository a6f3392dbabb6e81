//! Standard output and standard error: text, or one JSON object per line. Control characters in the text are escaped
//! ([`visible`]).

use std::io::{ErrorKind, IsTerminal, Write};

use serde::Serialize;
use serde_json::json;

use crate::error::{Error, Result};
use crate::visible::{visible, visible_json};

/// Where a command prints.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) json: bool,
    /// Text is written without escaping.
    raw: bool,
    is_terminal: bool,
    /// Quiet lines are dimmed.
    dims: bool,
}

impl Output {
    /// With `raw`, text is not escaped if the output is not a terminal.
    pub(crate) fn new(json: bool, raw: bool) -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        Self {
            json,
            raw: raw && !is_terminal,
            is_terminal,
            dims: is_terminal && std::env::var_os("NO_COLOR").is_none(),
        }
    }

    /// One thing: `value` with `--json`, otherwise what `text` makes of it, on lines of its own.
    pub(crate) fn line(&self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
        if self.json {
            self.object(value)
        } else {
            self.text(&format!("{}\n", text()))
        }
    }

    /// A JSON object on a line.
    pub(crate) fn object(&self, value: &impl Serialize) -> Result<()> {
        let line =
            serde_json::to_string(value).map_err(|error| Error::Internal(error.to_string()))?;
        self.json_text(&format!("{line}\n"))
    }

    /// Writes JSON of one or several lines.
    pub(crate) fn json_text(&self, json: &str) -> Result<()> {
        // Without a terminal a program reads the JSON, for which escaping makes no difference.
        match self.is_terminal {
            true => write(&visible_json(json)),
            false => write(json),
        }
    }

    /// Writes text and flushes it.
    pub(crate) fn text(&self, text: &str) -> Result<()> {
        match self.raw {
            true => write(text),
            false => write(&visible(text)),
        }
    }

    /// A line that stays in the background.
    pub(crate) fn quiet(&self, text: &str) -> Result<()> {
        match self.dims {
            true => write(&format!("\x1b[2m{}\x1b[0m\n", visible(text))),
            false => self.text(&format!("{text}\n")),
        }
    }

    /// One line on standard error, and with `--json` one on standard output.
    pub(crate) fn error(&self, error: &Error) {
        match error {
            // Whoever read the output has seen enough.
            Error::Output(error) if error.kind() == ErrorKind::BrokenPipe => {}
            Error::Interrupted => {}
            error => report(self.json, error.code(), &error.to_string()),
        }
    }
}

/// A mistake on the command line.
pub(crate) fn usage(json: bool, message: &str) {
    report(json, "invalid_argument", message);
}

fn report(json: bool, code: &str, message: &str) {
    if json {
        // Standard error has it too.
        let _ = write(&format!(
            "{}\n",
            json!({ "event": "error", "code": code, "message": message })
        ));
    }
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    eprintln!("error: {}", visible(&line));
}

fn write(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .map_err(Error::Output)
}

/// `12 345`: digits in groups of three.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// `93.8 MiB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{count} B"),
        _ => format!("{value:.1} {}", UNITS[unit]),
    }
}

/// `850 ms`, `12.3 s`.
pub(crate) fn milliseconds(ms: f64) -> String {
    match ms {
        ms if ms < 9.95 => format!("{ms:.1} ms"),
        ms if ms < 999.5 => format!("{ms:.0} ms"),
        ms => format!("{:.1} s", ms / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::{bytes, grouped, milliseconds};

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(grouped),
            ["0", "999", "1 000", "1 234 567"]
        );
        assert_eq!(
            [0, 1023, 1536, 98_362_432].map(bytes),
            ["0 B", "1023 B", "1.5 KiB", "93.8 MiB"]
        );
        assert_eq!(
            [0.04, 9.96, 999.4, 12_345.0].map(milliseconds),
            ["0.0 ms", "10 ms", "999 ms", "12.3 s"]
        );
    }
}
