//! `bench`: measurements. Everything happens in temporary folders and stops by itself; of the user's folder only the
//! model file is read. Medians over `--runs`, with the extremes beside them.

mod disk;
mod edit;
mod kv_quality;
mod llama_cpp;
mod memory;
mod place;
mod quiet;
mod resume;
mod snapshot;
mod speed;
mod text;

use std::path::PathBuf;

use engine::{DeviceChoice, EngineConfig};
use kernels::KvFormat;
use models::LoadOptions;

use crate::app::App;
use crate::arguments::{BenchCommand, BenchFlags};
use crate::error::{Error, Result};
use crate::output::Output;

/// What every measurement starts from.
struct Setup {
    /// The model file.
    model: PathBuf,
    num_threads: usize,
    kv: KvFormat,
    device: DeviceChoice,
}

pub(crate) fn run(command: BenchCommand, data_dir: Option<PathBuf>, output: &Output) -> Result<()> {
    let (model, threads) = command.model_and_threads();
    let num_threads = threads.map_or_else(EngineConfig::default_threads, usize::from);
    let model = match model {
        Some(path) if path.ends_with(".gguf") => PathBuf::from(path),
        // The lock is given back at once: what follows does not touch the user's folder.
        name => App::open(data_dir, threads)?.model_path(name)?,
    };
    let setup = Setup {
        model,
        num_threads,
        kv: command.kv(),
        device: command.device(),
    };
    // What was measured must be what was asked for.
    if let DeviceChoice::Cuda(_) = setup.device
        && let Some(reason) = setup.device.open(num_threads).reason
    {
        return Err(Error::InvalidArgument(format!(
            "the GPU cannot be measured: {reason}"
        )));
    }
    match &command {
        BenchCommand::Resume(flags) => resume::run(&setup, flags, output),
        BenchCommand::Edit(flags) => edit::run(&setup, flags, output),
        BenchCommand::Prefill(flags) => speed::prefill(&setup, flags, output),
        BenchCommand::Decode(flags) => speed::decode(&setup, flags, output),
        BenchCommand::Snapshot(flags) => snapshot::run(&setup, flags, output),
        BenchCommand::Memory(flags) => memory::run(&setup, flags, output),
        BenchCommand::KvQuality(flags) => kv_quality::run(&setup, flags, output),
    }
}

impl Setup {
    /// The model's options: its format of keys and values, and what computes.
    fn options(&self) -> LoadOptions {
        LoadOptions {
            kv: self.kv,
            device: self.device.open(self.num_threads).device,
            ..LoadOptions::default()
        }
    }

    fn model_name(&self) -> String {
        self.model
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    }
}

/// The one length of a measurement that takes one.
fn one_length(flags: &BenchFlags, default: u32) -> Result<usize> {
    match flags.tokens.as_slice() {
        [] => Ok(default as usize),
        [tokens] => Ok(*tokens as usize),
        _ => Err(Error::InvalidArgument(
            "this measurement takes one --tokens".into(),
        )),
    }
}

/// Median and extremes of samples; there is at least one.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spread {
    min: f64,
    median: f64,
    max: f64,
}

impl Spread {
    fn of(samples: impl IntoIterator<Item = f64>) -> Spread {
        let mut samples: Vec<f64> = samples.into_iter().collect();
        samples.sort_by(f64::total_cmp);
        let n = samples.len();
        let at = |index: usize| samples.get(index).copied().unwrap_or(f64::NAN);
        let median = if n % 2 == 1 {
            at(n / 2)
        } else {
            (at(n / 2) + at((n / 2).wrapping_sub(1))) / 2.0
        };
        Spread {
            min: at(0),
            median,
            max: at(n.wrapping_sub(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Spread;

    #[test]
    fn a_spread_is_the_median_and_the_extremes() {
        assert_eq!(
            Spread::of([3.0, 1.0, 2.0]),
            Spread {
                min: 1.0,
                median: 2.0,
                max: 3.0
            }
        );
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert_eq!(
            Spread::of([5.0]),
            Spread {
                min: 5.0,
                median: 5.0,
                max: 5.0
            }
        );
    }
}
