//! Prints the steps of `cargo xtask run` and their estimated time before they begin.

use std::time::Duration;

/// Rough estimates: processor-minutes of a release build, seconds of a UI build, minutes of an incremental build.
const RELEASE_CPU_MINUTES: u64 = 14;
const UI_SECONDS: u64 = 30;
const AGAIN_MINUTES: u64 = 2;

/// The steps that earlier runs have completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Number of missing system packages.
    pub(crate) missing_packages: usize,
    /// Whether the default model is in the data folder.
    pub(crate) model: bool,
    /// Whether the UI's packages are installed.
    pub(crate) ui: bool,
    /// Whether the application has been built.
    pub(crate) app: bool,
}

/// One line per step, with its estimated time; the longest step is last.
pub(crate) fn forecast(found: Found, model_bytes: u64, processors: usize) -> Vec<String> {
    let mut lines = Vec::new();
    match found.missing_packages {
        0 => {}
        1 => lines.push("installs 1 system package, named below".to_owned()),
        number => lines.push(format!("installs {number} system packages, named below")),
    }
    if !found.model {
        let megabytes = model_bytes / 1_000_000;
        lines.push(format!("fetches the default model ({megabytes} MB, once)"));
    }
    lines.push(match found.ui {
        true => "builds the UI if it has changed (seconds)".to_owned(),
        false => format!("fetches the UI's packages and builds it (about {UI_SECONDS} s)"),
    });
    lines.push(match found.app {
        true => format!(
            "builds what has changed of the application (seconds, up to {AGAIN_MINUTES} minutes)"
        ),
        false => format!(
            "builds the application for the first time ({} on {processors} {}; later starts take seconds)",
            about(cold(processors)),
            if processors == 1 { "processor" } else { "processors" },
        ),
    });
    lines
}

/// Estimated time of the first release build. Its last steps run on one processor.
fn cold(processors: usize) -> Duration {
    let on_one = Duration::from_secs(60 * RELEASE_CPU_MINUTES);
    let shared = on_one * 9 / 10;
    let processors = u32::try_from(processors.max(1)).unwrap_or(u32::MAX);
    on_one / 10 + shared / processors
}

fn about(time: Duration) -> String {
    match time.as_secs().div_ceil(60) {
        0 | 1 => "about a minute".to_owned(),
        minutes => format!("about {minutes} minutes"),
    }
}

/// The reason why no window can be opened, and a remedy; `None` if there is a display.
pub(crate) fn no_display(
    is_linux: bool,
    display: Option<&str>,
    wayland: Option<&str>,
) -> Option<String> {
    let is_there = |name: Option<&str>| name.is_some_and(|name| !name.is_empty());
    if !is_linux || is_there(display) || is_there(wayland) {
        return None;
    }
    Some(
        "there is no display to open a window on (DISPLAY and WAYLAND_DISPLAY are not set), so that nothing was built. Run \
         this in a desktop session, or without a screen: `xvfb-run -a cargo xtask run`. For a terminal there is \
         `cargo run --release -p reprise-cli -- chat`"
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::{Found, forecast, no_display};

    const COLD: Found = Found {
        missing_packages: 3,
        model: false,
        ui: false,
        app: false,
    };
    const WARM: Found = Found {
        missing_packages: 0,
        model: true,
        ui: true,
        app: true,
    };

    #[test]
    fn a_fresh_machine_is_told_all_that_is_done_and_how_long_it_takes() {
        let lines = forecast(COLD, 98_362_432, 2);
        assert_eq!(lines.len(), 4);
        assert!(lines[0].contains("3 system packages"), "{lines:?}");
        assert!(lines[1].contains("98 MB"), "{lines:?}");
        assert!(
            lines[3].contains("about 8 minutes on 2 processors"),
            "{lines:?}"
        );
        let one = forecast(COLD, 1, 1);
        assert!(
            one[3].contains("about 14 minutes on 1 processor;"),
            "{one:?}"
        );
        assert!(forecast(COLD, 1, 64)[3].contains("about 2 minutes"));
    }

    #[test]
    fn a_machine_that_has_it_all_is_promised_seconds_and_no_download() {
        let lines = forecast(WARM, 98_362_432, 2);
        assert_eq!(lines.len(), 2);
        assert!(
            lines.iter().all(|line| line.contains("seconds")),
            "{lines:?}"
        );
    }

    #[test]
    fn that_there_is_no_display_is_said_with_what_to_do() {
        let said = no_display(true, None, Some("")).expect("a reason");
        assert!(said.contains("xvfb-run -a cargo xtask run"), "{said}");
        for (display, wayland) in [(Some(":0"), None), (None, Some("wayland-0"))] {
            assert_eq!(no_display(true, display, wayland), None);
        }
        assert_eq!(no_display(false, None, None), None);
    }
}
