//! The Reprise desktop application.

// No console window beside the real one.
#![cfg_attr(all(windows, not(debug_assertions)), windows_subsystem = "windows")]

fn main() -> std::process::ExitCode {
    reprise::run()
}
