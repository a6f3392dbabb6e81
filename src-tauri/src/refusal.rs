//! Saying, without a window, why there will be none.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// How long the message stays when nobody answers it: a process must not hang where nobody looks.
const PATIENCE: Duration = Duration::from_secs(20);

/// Says `reason` on standard error and, unless somebody reads that in a terminal, in a native message; hands back the
/// status to end with.
pub(crate) fn refuse(reason: &str) -> ExitCode {
    eprintln!("reprise: {reason}");
    if has_display() && !std::io::stderr().is_terminal() {
        let (answered, answer) = mpsc::channel();
        let dialog = rfd::MessageDialog::new()
            .set_level(rfd::MessageLevel::Error)
            .set_title("Reprise cannot start")
            .set_description(sentence(reason));
        thread::spawn(move || {
            dialog.show();
            // Nobody waits any more once the patience is over.
            let _ = answered.send(());
        });
        let _ = answer.recv_timeout(PATIENCE);
    }
    ExitCode::FAILURE
}

fn has_display() -> bool {
    let names_one = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !cfg!(target_os = "linux") || names_one("DISPLAY") || names_one("WAYLAND_DISPLAY")
}

/// Error texts begin in lower case and end without a stop; a message to a person does neither.
fn sentence(reason: &str) -> String {
    let mut chars = reason.chars();
    match chars.next() {
        Some(first) => format!("{}{}.", first.to_uppercase(), chars.as_str()),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_reason_is_said_as_a_sentence() {
        assert_eq!(super::sentence("the disk is full"), "The disk is full.");
        assert_eq!(super::sentence(""), "");
    }
}
