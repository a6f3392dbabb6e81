//! The baseline: llama.cpp's own `llama-bench`, one process for each sample, on the CPU.

use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use super::Spread;
use super::quiet::Samples;
use crate::error::{Error, Result};

/// Where it is told how to get the program.
const README: &str = "tests/bench/README.md";

/// The program, what each of its samples runs, and the samples so far.
pub(super) struct LlamaCpp<'a> {
    program: &'a Path,
    work: Work<'a>,
    build: String,
    /// Without flash attention and with it.
    samples: [Samples; 2],
}

/// What a sample runs: a prompt of so many tokens, or so many tokens one at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work<'a> {
    pub model: &'a Path,
    pub num_threads: usize,
    pub prompt_tokens: usize,
    pub decode_tokens: usize,
    pub depth: usize,
}

/// llama.cpp at its best.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Against {
    pub program: &'static str,
    /// Number and commit.
    pub build: String,
    /// Whether it was faster with it.
    pub flash_attention: bool,
    pub tokens_per_s: f64,
    pub min_tokens_per_s: f64,
    pub max_tokens_per_s: f64,
    /// Runs during which others used the machine.
    pub noisy: u32,
}

/// The part of its report that is used.
#[derive(Debug, Deserialize, PartialEq)]
struct Report {
    build_commit: String,
    build_number: u64,
    n_threads: usize,
    n_prompt: usize,
    n_gen: usize,
    n_depth: usize,
    avg_ts: f64,
}

impl<'a> LlamaCpp<'a> {
    /// The program at a path, or of a name on the `PATH`; it is seen to start.
    pub(super) fn find(program: &'a Path, work: Work<'a>) -> Result<LlamaCpp<'a>> {
        output(Command::new(program).arg("--help"))?;
        Ok(LlamaCpp {
            program,
            work,
            build: String::new(),
            samples: Default::default(),
        })
    }

    /// One sample without flash attention and one with it, each from a process of its own.
    pub(super) fn round(&mut self) -> Result<()> {
        let (program, work) = (self.program, &self.work);
        for (flash_attention, samples) in self.samples.iter_mut().enumerate() {
            samples.take(|| {
                let report = measure(program, work, flash_attention)?;
                self.build = format!("{} ({})", report.build_number, report.build_commit);
                Ok(report.avg_ts)
            })?;
        }
        Ok(())
    }

    /// The setting with the better median.
    pub(super) fn best(self) -> Against {
        let build = self.build;
        let [off, on] = self.samples.map(|it| (Spread::of(it.values), it.noisy));
        let flash_attention = on.0.median > off.0.median;
        let (speed, noisy) = if flash_attention { on } else { off };
        Against {
            program: "llama.cpp",
            build,
            flash_attention,
            tokens_per_s: speed.median,
            min_tokens_per_s: speed.min,
            max_tokens_per_s: speed.max,
            noisy,
        }
    }
}

/// Runs `work` once.
fn measure(program: &Path, work: &Work<'_>, flash_attention: usize) -> Result<Report> {
    let mut command = Command::new(program);
    command.arg("-m").arg(work.model);
    for (flag, number) in [
        ("-t", work.num_threads),
        ("-p", work.prompt_tokens),
        ("-n", work.decode_tokens),
        ("-d", work.depth),
        ("-r", 1),
        ("-fa", flash_attention),
    ] {
        command.arg(flag).arg(number.to_string());
    }
    // Where it was built for a GPU, it would be measured on that.
    command.args(["-dev", "none", "-o", "json"]);
    read(&output(&mut command)?, work).ok_or_else(|| {
        Error::Internal(format!(
            "{} printed no measurement of what it was asked; build the version that {README} names",
            program.display()
        ))
    })
}

/// What a process printed that ended well.
fn output(command: &mut Command) -> Result<Vec<u8>> {
    let result = command.stdin(Stdio::null()).output();
    let program = command.get_program().display();
    let output = result.map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::InvalidArgument(format!(
            "{program} was not found; build llama.cpp as {README} says and name its llama-bench with --llama-bench"
        )),
        _ => Error::InvalidArgument(format!(
            "{program} cannot be started ({error}); name llama.cpp's llama-bench with --llama-bench"
        )),
    })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let reason = errors.lines().rfind(|line| !line.trim().is_empty());
    Err(Error::Internal(format!(
        "{program} failed ({}: {}); build the version that {README} names, or run it by itself to see more",
        output.status,
        reason.unwrap_or("it does not say why")
    )))
}

/// The report in its JSON, where it is one of exactly this work.
fn read(json: &[u8], work: &Work<'_>) -> Option<Report> {
    let [report]: [Report; 1] = serde_json::from_slice(json).ok()?;
    let did = [
        report.n_threads,
        report.n_prompt,
        report.n_gen,
        report.n_depth,
    ];
    let asked = [
        work.num_threads,
        work.prompt_tokens,
        work.decode_tokens,
        work.depth,
    ];
    (did == asked && report.avg_ts > 0.0).then_some(report)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{LlamaCpp, Samples, Work, read};

    /// As printed by the version that the README names.
    const JSON: &str = r#"[
  {
    "build_commit": "0c1e570",
    "build_number": 1,
    "cpu_info": "Intel(R) Xeon(R) Processor",
    "gpu_info": "",
    "backends": "CPU",
    "model_filename": "SmolLM2-135M-Instruct.Q4_1.gguf",
    "model_type": "llama 256M Q4_1",
    "model_size": 96576768,
    "model_n_params": 134515008,
    "n_batch": 2048,
    "n_ubatch": 512,
    "n_threads": 2,
    "cpu_mask": "0x0",
    "cpu_strict": false,
    "poll": 50,
    "type_k": "f16",
    "type_v": "f16",
    "n_gpu_layers": -1,
    "n_cpu_moe": 0,
    "split_mode": "layer",
    "main_gpu": 0,
    "no_kv_offload": false,
    "flash_attn": 1,
    "devices": "none",
    "tensor_split": "0.00",
    "tensor_buft_overrides": "none",
    "load_mode": "auto",
    "lazy_mode": "auto",
    "embeddings": false,
    "no_op_offload": 0,
    "no_host": false,
    "repack": true,
    "fit_target": 0,
    "fit_min_ctx": 0,
    "n_prompt": 16,
    "n_gen": 0,
    "n_depth": 8,
    "test_time": "2026-11-29T17:23:53Z",
    "avg_ns": 130990649,
    "stddev_ns": 0,
    "avg_ts": 122.146124,
    "stddev_ts": 0.000000,
    "samples_ns": [ 130990649 ],
    "samples_ts": [ 122.146 ]
  }
]
"#;

    fn work() -> Work<'static> {
        Work {
            model: Path::new("SmolLM2-135M-Instruct.Q4_1.gguf"),
            num_threads: 2,
            prompt_tokens: 16,
            decode_tokens: 0,
            depth: 8,
        }
    }

    #[test]
    fn a_report_of_the_work_that_was_asked_for_is_read() {
        let report = read(JSON.as_bytes(), &work()).expect("a report");
        assert_eq!(report.avg_ts, 122.146124);
        assert_eq!((report.build_number, &*report.build_commit), (1, "0c1e570"));
    }

    #[test]
    fn a_report_of_other_work_is_not_taken() {
        for work in [
            Work {
                num_threads: 1,
                ..work()
            },
            Work { depth: 0, ..work() },
            Work {
                prompt_tokens: 0,
                decode_tokens: 16,
                ..work()
            },
        ] {
            assert_eq!(read(JSON.as_bytes(), &work), None);
        }
    }

    #[test]
    fn what_is_no_report_is_not_taken() {
        let cut = &JSON.as_bytes()[..JSON.len() - 20];
        let zero = JSON.replace("122.146124", "0.000000");
        for json in [
            b"[]",
            &b"error: unknown flag"[..],
            b"",
            cut,
            zero.as_bytes(),
        ] {
            assert_eq!(read(json, &work()), None);
        }
    }

    #[test]
    fn the_faster_setting_by_its_median_is_the_baseline() {
        let samples = |values: &[f64], noisy| Samples {
            values: values.to_vec(),
            noisy,
        };
        let theirs = LlamaCpp {
            program: Path::new("llama-bench"),
            work: work(),
            build: "1 (0c1e570)".into(),
            samples: [
                samples(&[90.0, 100.0, 500.0], 1),
                samples(&[1.0, 120.0, 130.0], 2),
            ],
        };
        let best = theirs.best();
        assert!(best.flash_attention);
        assert_eq!((best.tokens_per_s, best.noisy), (120.0, 2));
    }
}
