//! `bench`: measurements.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use engine::DeviceChoice;
use kernels::KvFormat;

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Time to the first token without the cache, after a restart with it, and resident
    Resume(BenchFlags),
    /// An edit at 50 % and 90 % of a long message after a restart, against no cache
    Edit(BenchFlags),
    /// Prompt speed of the model alone
    Prefill(SpeedFlags),
    /// Decoding speed of the model alone
    Decode(SpeedFlags),
    /// Bytes that turns write, and decoding speed with and without saving
    Snapshot(BenchFlags),
    /// Memory that a loaded model and a conversation take, beside the plan, and after they are given back
    Memory(BenchFlags),
    /// What a format of keys and values costs: perplexity, divergence and agreement with f16 over a text
    KvQuality(QualityFlags),
}

/// Flags of every measurement.
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchFlags {
    /// Model by name, or by the path of a .gguf file (default: the default model)
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// Length in tokens; for `resume` a list
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) tokens: Vec<u32>,
    /// Threads to compute with (default: physical cores)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
    /// How often to measure; medians are reported
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runs: Option<u32>,
    /// Format of keys and values: f16, bf16, q8, q4, or two of them as keys/values
    #[arg(long, value_name = "FORMAT", default_value = "q8")]
    pub(crate) kv: KvFormat,
    /// What is to compute: auto, cpu, or cuda:0 (always the CPU for `memory` and with --against)
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub(crate) device: DeviceChoice,
}

/// Flags of `bench kv-quality`.
#[derive(Clone, Debug, Args)]
pub(crate) struct QualityFlags {
    /// Text to read: at least 8 000 tokens of it tell something
    #[arg(long, value_name = "FILE")]
    pub(crate) text: PathBuf,
    /// Model by name, or by the path of a .gguf file (default: the default model)
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// Formats to measure against f16 (each as f16, bf16, q8, q4, or keys/values)
    #[arg(
        long,
        value_name = "FORMAT",
        value_delimiter = ',',
        default_value = "f16,bf16,q8,q4"
    )]
    pub(crate) kv: Vec<KvFormat>,
    /// Most tokens to read (default: the whole text)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) tokens: Option<u32>,
    /// Measure a format also where this model is known to fail with it, instead of what it gets in its place
    #[arg(long)]
    pub(crate) forced: bool,
    /// Round activations as replies do. Any change, however small, moves what that rounds, which hides what a format costs
    #[arg(long)]
    pub(crate) rounded_activations: bool,
    /// Threads to compute with (default: physical cores)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
}

/// Flags of the measurements of the model alone.
#[derive(Clone, Debug, Args)]
pub(crate) struct SpeedFlags {
    #[command(flatten)]
    pub(crate) bench: BenchFlags,
    /// Tokens before the measured ones
    #[arg(long, value_name = "D", default_value_t = 0)]
    pub(crate) depth: u32,
    /// Instructions to compute with (default: the fastest this machine has): avx512, avx-vnni, avx2 or scalar
    #[arg(long, value_name = "SET")]
    pub(crate) instructions: Option<String>,
    /// Measure another program in turn, on the same file, threads, tokens and depth
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) against: Option<Baseline>,
    /// llama.cpp's `llama-bench`
    #[arg(
        long,
        value_name = "PATH",
        default_value = "llama-bench",
        requires = "against"
    )]
    pub(crate) llama_bench: PathBuf,
}

/// A program to compare the speed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Baseline {
    /// Its `llama-bench` on the CPU, with flash attention on or off, whichever is faster
    #[value(name = "llama.cpp")]
    LlamaCpp,
}

impl BenchCommand {
    /// The model and the threads to measure with.
    pub(crate) fn model_and_threads(&self) -> (Option<&str>, Option<u16>) {
        fn of(flags: &BenchFlags) -> (Option<&str>, Option<u16>) {
            (flags.model.as_deref(), flags.threads)
        }
        match self {
            Self::Resume(flags)
            | Self::Edit(flags)
            | Self::Snapshot(flags)
            | Self::Memory(flags) => of(flags),
            Self::Prefill(flags) | Self::Decode(flags) => of(&flags.bench),
            Self::KvQuality(flags) => (flags.model.as_deref(), flags.threads),
        }
    }

    /// The device to compute on. Always the CPU for `memory`, for `kv-quality` and for a comparison with another
    /// program.
    pub(crate) fn device(&self) -> DeviceChoice {
        match self {
            Self::Resume(flags) | Self::Edit(flags) | Self::Snapshot(flags) => flags.device,
            Self::Prefill(flags) | Self::Decode(flags) if flags.against.is_none() => {
                flags.bench.device
            }
            Self::Prefill(_) | Self::Decode(_) | Self::Memory(_) | Self::KvQuality(_) => {
                DeviceChoice::Cpu
            }
        }
    }

    /// The KV format to measure; commands that measure several formats have a flag of their own.
    pub(crate) fn kv(&self) -> KvFormat {
        match self {
            Self::Resume(flags)
            | Self::Edit(flags)
            | Self::Snapshot(flags)
            | Self::Memory(flags) => flags.kv,
            Self::Prefill(flags) | Self::Decode(flags) => flags.bench.kv,
            Self::KvQuality(_) => KvFormat::F16,
        }
    }
}
