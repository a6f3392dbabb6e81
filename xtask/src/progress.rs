//! Progress of a download: one updating line on a terminal, a line at each quarter elsewhere.

use std::io::{IsTerminal, Write};

/// A progress display for received bytes.
pub(crate) struct Progress {
    total: u64,
    is_terminal: bool,
    /// The last value shown: per cent on a terminal, quarters elsewhere.
    told: Option<u64>,
}

impl Progress {
    /// Progress up to `total` bytes, on standard error.
    pub(crate) fn new(total: u64) -> Self {
        Self::on(total, std::io::stderr().is_terminal())
    }

    fn on(total: u64, is_terminal: bool) -> Self {
        Self {
            total,
            is_terminal,
            told: None,
        }
    }

    /// Shows that `bytes` bytes have been received.
    pub(crate) fn show(&mut self, bytes: u64) {
        if let Some(text) = self.text(bytes) {
            let mut err = std::io::stderr().lock();
            // A failed write is ignored: progress is only informative.
            let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
        }
    }

    /// The text to write for `bytes` received bytes; `None` if the shown value does not change.
    fn text(&mut self, bytes: u64) -> Option<String> {
        let bytes = bytes.min(self.total);
        let parts = if self.is_terminal { 100 } else { 4 };
        let reached = bytes * parts / self.total.max(1);
        let is_new = self.told.is_none_or(|told| reached > told);
        if !is_new || (!self.is_terminal && reached == 0) {
            return None;
        }
        self.told = Some(reached);
        let line = format!(
            "  {} of {} MB ({} %)",
            bytes / 1_000_000,
            self.total / 1_000_000,
            bytes * 100 / self.total.max(1)
        );
        Some(match (self.is_terminal, bytes == self.total) {
            (true, false) => format!("\r{line}"),
            (true, true) => format!("\r{line}\n"),
            (false, _) => format!("{line}\n"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Progress;

    #[test]
    fn a_terminal_sees_one_line_that_changes() {
        let mut progress = Progress::on(98_000_000, true);
        assert_eq!(progress.text(0).as_deref(), Some("\r  0 of 98 MB (0 %)"));
        assert_eq!(progress.text(1), None);
        assert_eq!(
            progress.text(49_000_000).as_deref(),
            Some("\r  49 of 98 MB (50 %)")
        );
        assert_eq!(
            progress.text(98_000_000).as_deref(),
            Some("\r  98 of 98 MB (100 %)\n")
        );
        assert_eq!(progress.text(99_000_000), None);
    }

    #[test]
    fn elsewhere_each_quarter_is_a_line() {
        let mut progress = Progress::on(100_000_000, false);
        let told: Vec<_> = (0..=100)
            .filter_map(|at| progress.text(at * 1_000_000))
            .collect();
        assert_eq!(
            told,
            [
                "  25 of 100 MB (25 %)\n",
                "  50 of 100 MB (50 %)\n",
                "  75 of 100 MB (75 %)\n",
                "  100 of 100 MB (100 %)\n"
            ]
        );
    }
}
