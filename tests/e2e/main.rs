//! The real window: the application under a display, driven by the system's web driver, with the default model.
//!
//! `cargo xtask test` runs this inside `xvfb-run` and names the binary in `REPRISE_TEST_APP`.

mod contract;
mod engine;
mod hands;
mod privacy;
mod release;
mod resume;
mod unsent;
mod window;
