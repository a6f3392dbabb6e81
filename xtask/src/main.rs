//! `cargo xtask`: the two commands of the README and nothing a user needs at run time.
//!
//! `run` makes a fresh machine ready (system packages, default model, UI, release build) and opens the window;
//! `test` makes it ready in the same way and then runs every check and test there is, in one fixed order.
//! `model` does of all this only the fetching of the default model, for a plain `cargo test`.
//! `kernels` compiles the CUDA sources to the PTX that is checked in; nothing else needs their compiler.
//! `gpu-check` builds what is taken to a machine with a GPU to be checked and measured there.
//! All may be repeated: whatever is already there and right is left alone.
//!
//! It does not build installers (the hosted workflow does) and it changes nothing outside the checkout, the target
//! folder, the system's package database (asked for aloud) and the application's data folder (the model).

mod arrows;
mod forecast;
mod gpu_check;
mod kernels;
mod model;
mod process;
mod progress;
mod run;
mod setup;
mod steps;
mod test;
mod tracked;
mod ui;
mod workspace;

use std::process::ExitCode;

/// What a command hands back when it cannot go on: one sentence for the person at the terminal.
pub(crate) type Result<T> = std::result::Result<T, String>;

const USAGE: &str = "usage: cargo xtask run [-- ARGUMENTS OF THE APP]
       cargo xtask test
       cargo xtask model    fetches the default model only
       cargo xtask kernels [--check]    compiles the CUDA kernels to their PTX, or compares
       cargo xtask gpu-check    builds what tests/gpu/check.sh runs on a machine with a GPU";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let command = args.next();
    let mut rest: Vec<String> = args.collect();
    if rest.first().is_some_and(|arg| arg == "--") {
        rest.remove(0);
    }
    let outcome = match command.as_deref() {
        Some("run") => run::run(&rest),
        Some("test") if rest.is_empty() => test::test(),
        Some("model") if rest.is_empty() => model(),
        Some("kernels") if rest.is_empty() => kernels::kernels(false),
        Some("kernels") if rest == ["--check"] => kernels::kernels(true),
        Some("gpu-check") if rest.is_empty() => gpu_check::gpu_check(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("\nxtask: {message}");
            ExitCode::FAILURE
        }
    }
}

fn model() -> Result<()> {
    let path = model::fetch(&workspace::data_folder()?)?;
    println!("The default model is {}", path.display());
    Ok(())
}
