//! Named, timed steps that stop at the first failure, and the count of tests they ran.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::{Result, process};

/// The steps done so far.
pub(crate) struct Steps {
    done: Vec<(String, Duration)>,
    passed: u64,
    failed: u64,
    started: Instant,
}

impl Steps {
    pub(crate) fn new() -> Steps {
        Steps {
            done: Vec::new(),
            passed: 0,
            failed: 0,
            started: Instant::now(),
        }
    }

    /// Does one step; says its name before and its time after.
    pub(crate) fn step(&mut self, name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let outcome = self.timed(name, work);
        self.ended(outcome)
    }

    /// A step that is one command.
    pub(crate) fn command(&mut self, name: &str, command: &mut Command) -> Result<()> {
        self.step(name, || process::run(command))
    }

    /// A step that is one test runner: its tests are counted, and running none is a failure.
    pub(crate) fn tests(&mut self, name: &str, command: &mut Command) -> Result<()> {
        let (mut passed, mut failed) = (0, 0);
        let outcome = self.timed(name, || {
            process::tee(command, |line| {
                if let Some(count) = counted(line) {
                    passed += count.0;
                    failed += count.1;
                }
            })?;
            if passed == 0 {
                return Err("it ran no test".into());
            }
            Ok(())
        });
        self.passed += passed;
        self.failed += failed;
        self.ended(outcome)
    }

    fn timed(&mut self, name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
        println!("\n── {name}");
        let start = Instant::now();
        let outcome = work();
        let time = start.elapsed();
        self.done.push((name.to_owned(), time));
        match outcome {
            Ok(()) => {
                println!("── {name}: {}", shown(time));
                Ok(())
            }
            Err(reason) => Err(format!(
                "step `{name}` failed after {}: {reason}",
                shown(time)
            )),
        }
    }

    /// After a failure nothing more is done, so that the summary is due.
    fn ended(&mut self, outcome: Result<()>) -> Result<()> {
        if outcome.is_err() {
            // The closing line must not look like a success, also where it was no test that failed.
            self.failed = self.failed.max(1);
            self.summary();
        }
        outcome
    }

    /// The times of all steps, and as the very last line the tests that passed and failed.
    pub(crate) fn summary(&self) {
        println!();
        for (name, time) in &self.done {
            println!("{:>8}  {name}", shown(*time));
        }
        println!("{:>8}  in all", shown(self.started.elapsed()));
        println!("\n{} passed, {} failed", self.passed, self.failed);
    }
}

/// Passed and failed tests, if `line` is a closing line of cargo test, vitest or node's test runner.
fn counted(line: &str) -> Option<(u64, u64)> {
    let plain = without_colour(line);
    let line = plain.trim();
    let before = |word: &str| {
        let head = &line[..line.find(word)?];
        head.split_whitespace().next_back()?.parse().ok()
    };
    if line.starts_with("test result:") || line.starts_with("Tests ") || starts_with_count(line) {
        let (passed, failed) = (before("passed"), before("failed"));
        return (passed.is_some() || failed.is_some())
            .then(|| (passed.unwrap_or(0), failed.unwrap_or(0)));
    }
    // node's runner: "# pass 12" or "ℹ pass 12", and the same with "fail"
    let mut words = line.split_whitespace();
    match (
        words.next()?,
        words.next()?,
        words.next()?.parse(),
        words.next(),
    ) {
        ("#" | "ℹ", "pass", Ok(n), None) => Some((n, 0)),
        ("#" | "ℹ", "fail", Ok(n), None) => Some((0, n)),
        _ => None,
    }
}

/// "12 passed, 0 failed" alone on a line.
fn starts_with_count(line: &str) -> bool {
    let mut words = line.split_whitespace();
    words.next().is_some_and(|word| word.parse::<u64>().is_ok())
        && words
            .next()
            .is_some_and(|word| matches!(word.trim_end_matches(','), "passed" | "failed"))
}

fn without_colour(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        if char == '\u{1b}' {
            // A colour sequence ends with its first letter.
            let _ = chars.by_ref().find(char::is_ascii_alphabetic);
        } else {
            plain.push(char);
        }
    }
    plain
}

fn shown(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 60.0 {
        format!("{seconds:.1} s")
    } else {
        format!("{} m {:02} s", time.as_secs() / 60, time.as_secs() % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn closing_lines_of_the_runners_are_counted() {
        assert_eq!(
            counted("test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured"),
            Some((12, 0))
        );
        assert_eq!(
            counted("\u{1b}[2m      Tests \u{1b}[22m \u{1b}[1m\u{1b}[32m41 passed\u{1b}[39m (41)"),
            Some((41, 0))
        );
        assert_eq!(
            counted("      Tests  1 failed | 40 passed (41)"),
            Some((40, 1))
        );
        assert_eq!(counted(" Test Files  3 passed (3)"), None);
        assert_eq!(counted("ℹ pass 7"), Some((7, 0)));
        assert_eq!(counted("9 passed, 0 failed"), Some((9, 0)));
        assert_eq!(counted("the 3 checks that passed"), None);
    }
}
