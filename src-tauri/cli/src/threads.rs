//! How many threads compute.

use std::ffi::OsString;
use std::process::Command;

use crate::error::{Error, Result};

/// Read by rayon and by candle, each when its pool starts.
const VARIABLE: &str = "RAYON_NUM_THREADS";

/// Sets the number of computing threads of this process, before any is started: `wanted`, else what the environment
/// says, else the physical cores. Returns it.
///
/// candle takes the number from the environment only, and a process cannot safely change its own: so that both pools
/// agree, a `wanted` number that the environment lacks starts the program again under it.
pub(crate) fn set(wanted: Option<u16>) -> Result<usize> {
    let from_environment = std::env::var(VARIABLE)
        .ok()
        .and_then(|text| text.parse::<usize>().ok())
        .filter(|&n| n > 0);
    if let Some(wanted) = wanted
        && from_environment != Some(usize::from(wanted))
    {
        return Err(start_again(&wanted.to_string().into()));
    }
    let num_threads = from_environment.unwrap_or_else(physical_cores);
    rayon::ThreadPoolBuilder::new()
        .num_threads(num_threads)
        .build_global()
        .map_err(|error| {
            Error::Internal(format!("the computing threads cannot be started: {error}"))
        })?;
    Ok(num_threads)
}

fn physical_cores() -> usize {
    // A container may be given fewer than the machine has.
    num_cpus::get_physical().min(num_cpus::get()).max(1)
}

/// Replaces this process; returns only when that failed.
fn start_again(num_threads: &OsString) -> Error {
    let command = std::env::current_exe().map(|program| {
        let mut command = Command::new(program);
        command
            .args(std::env::args_os().skip(1))
            .env(VARIABLE, num_threads);
        command
    });
    let failed = |error: std::io::Error| {
        Error::Internal(format!("the program cannot be started again: {error}"))
    };
    match command {
        Ok(mut command) => failed(replace(&mut command)),
        Err(error) => failed(error),
    }
}

#[cfg(unix)]
fn replace(command: &mut Command) -> std::io::Error {
    std::os::unix::process::CommandExt::exec(command)
}

#[cfg(not(unix))]
fn replace(command: &mut Command) -> std::io::Error {
    match command.status() {
        Ok(status) => std::process::exit(status.code().unwrap_or(1)),
        Err(error) => error,
    }
}
