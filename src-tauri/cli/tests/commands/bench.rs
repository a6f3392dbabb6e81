//! The measurements run to their end and report what they promise.

use std::path::Path;
#[cfg(unix)]
use std::path::PathBuf;

use crate::support::{Folder, number, string};

#[test]
fn prefill_and_decode_report_a_speed() {
    let folder = Folder::with_model();
    for bench in ["prefill", "decode"] {
        let flags = [
            "--tokens",
            "70",
            "--depth",
            "130",
            "--threads",
            "1",
            "--runs",
            "2",
        ];
        let row = folder.last(&[&["bench", bench][..], &flags].concat());
        assert_eq!(
            [
                number(&row, "tokens"),
                number(&row, "depth"),
                number(&row, "threads")
            ],
            [70, 130, 1]
        );
        assert!(
            row["tokens_per_s"]
                .as_f64()
                .is_some_and(|speed| speed > 0.0),
            "{row}"
        );
    }
}

#[test]
fn instructions_can_be_chosen_and_those_the_machine_lacks_are_refused_by_name() {
    let folder = Folder::with_model();
    let bench = ["bench", "prefill", "--tokens", "5", "--runs", "1"];
    let row = folder.last(&[&bench[..], &["--instructions", "scalar"]].concat());
    assert_eq!(string(&row, "instructions"), "scalar");
    let refused = folder.run(&[&bench[..], &["--instructions", "abacus"]].concat());
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success());
    assert!(
        errors.contains("abacus") && errors.contains("scalar"),
        "{errors}"
    );
}

#[test]
fn resume_reports_every_state_and_reuses_the_conversation() {
    let folder = Folder::with_model();
    let rows = folder.json(&["bench", "resume", "--tokens", "600,900", "--runs", "1"]);
    for tokens in [600, 900] {
        let of = |state: &str| {
            let found = rows
                .iter()
                .find(|row| number(row, "tokens") == tokens && string(row, "state") == state);
            found.unwrap_or_else(|| panic!("no {state} in {rows:?}"))
        };
        let cold = of("cold");
        let prompt = number(cold, "prompt_tokens");
        assert!(prompt.abs_diff(tokens) < 150, "{cold}");
        assert_eq!(number(cold, "computed"), prompt);
        let warm = of("restarted, page cache warm");
        assert!(
            number(warm, "restored") > prompt / 2 && number(warm, "computed") < 150,
            "{warm}"
        );
        assert!(
            warm["restore_bytes_per_s"].as_f64().is_some()
                && warm["disk_bytes_per_s"].as_f64().is_some()
        );
        let resident = of("resident");
        assert!(
            number(resident, "resident") > prompt / 2 && number(resident, "computed") < 150,
            "{resident}"
        );
        #[cfg(target_os = "linux")]
        assert!(number(of("restarted, page cache dropped"), "restored") > prompt / 2);
    }
}

#[test]
fn an_edit_computes_what_the_preview_said() {
    let folder = Folder::with_model();
    let rows = folder.json(&["bench", "edit", "--tokens", "800", "--runs", "1"]);
    assert_eq!(
        rows.iter()
            .map(|row| number(row, "at_percent"))
            .collect::<Vec<_>>(),
        [50, 90]
    );
    for row in &rows {
        assert_eq!(
            number(row, "computed"),
            number(row, "prompt_tokens") - number(row, "keeps"),
            "{row}"
        );
        let share = number(row, "computed") * 100 / number(row, "prompt_tokens");
        assert!(share.abs_diff(100 - number(row, "at_percent")) < 5, "{row}");
    }
}

#[test]
fn a_turn_writes_its_new_tokens_and_one_tail_block_at_most() {
    let folder = Folder::with_model();
    let rows = folder.json(&["bench", "snapshot", "--tokens", "200", "--runs", "1"]);
    let turns: Vec<_> = rows.iter().filter(|row| row["what"] == "turn").collect();
    assert!(turns.len() > 2, "{rows:?}");
    for turn in turns {
        assert_eq!(turn["within_limit"], true, "{turn}");
        assert!(number(turn, "bytes_written") > 0, "{turn}");
    }
    let decode = rows.last().expect("a row");
    for key in [
        "tokens_per_s_saving",
        "tokens_per_s_not_saving",
        "tokens_per_s_writing",
        "saving_over_not_saving",
        "writing_over_not_saving",
        "ttft_ms_saving",
        "ttft_ms_not_saving",
        "close_ms",
        "flush_ms",
    ] {
        assert!(decode[key].as_f64().is_some_and(|it| it > 0.0), "{key}");
    }
}

/// Writes a `llama-bench` into the folder that reports what it was asked as done, at 100 tokens per second or with flash
/// attention at `with_flash_attention`, and notes each run in `log`.
#[cfg(unix)]
fn fake_llama_bench(folder: &Path, with_flash_attention: u32) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;

    let script = format!(
        r#"#!/bin/sh
[ "$1" = --help ] && exit 0
while [ $# -gt 0 ]; do
    case "$1" in
        -t) threads=$2 ;; -p) prompt=$2 ;; -n) gen=$2 ;; -d) depth=$2 ;; -fa) fa=$2 ;;
    esac
    shift
done
echo "-t $threads -p $prompt -n $gen -d $depth -fa $fa" >> {log}
speed=100.5
[ "$fa" = 1 ] && speed={with_flash_attention}
cat <<END
[
  {{
    "build_commit": "abc1234", "build_number": 77, "backends": "CPU", "n_threads": $threads,
    "flash_attn": $fa, "n_prompt": $prompt, "n_gen": $gen, "n_depth": $depth,
    "avg_ts": $speed, "stddev_ts": 0.000000, "samples_ts": [ $speed ]
  }}
]
END
"#,
        log = folder.join("log").display()
    );
    let path = folder.join("llama-bench");
    std::fs::write(&path, script).expect("script");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("executable");
    path
}

#[cfg(unix)]
#[test]
fn a_speed_against_llama_cpp_has_both_numbers_their_ratio_and_its_better_setting() {
    for (with_flash_attention, best) in [(250, 250.0), (50, 100.5)] {
        let folder = Folder::with_model();
        let program = fake_llama_bench(folder.path(), with_flash_attention);
        let model = folder.path().join("models/tiny.gguf");
        let row = folder.last(&[
            "bench",
            "prefill",
            "--model",
            model.to_str().expect("UTF-8"),
            "--tokens",
            "16",
            "--depth",
            "70",
            "--threads",
            "1",
            "--runs",
            "2",
            "--against",
            "llama.cpp",
            "--llama-bench",
            program.to_str().expect("UTF-8"),
        ]);
        let against = &row["against"];
        assert_eq!(
            [&against["program"], &against["build"]],
            ["llama.cpp", "77 (abc1234)"]
        );
        assert_eq!(against["tokens_per_s"], best);
        assert_eq!(against["flash_attention"], best == 250.0);
        let ours = row["tokens_per_s"].as_f64().expect("our speed");
        let ratio = row["ratio"].as_f64().expect("a ratio");
        assert!((ratio - ours / best).abs() < 1e-9 * ratio, "{row}");

        // In turn; a sample that others disturbed is taken again.
        let log = std::fs::read_to_string(folder.path().join("log")).expect("log");
        let mut runs: Vec<_> = log.lines().collect();
        runs.dedup();
        let work = "-t 1 -p 16 -n 0 -d 70 -fa";
        let settings = [0, 1, 0, 1].map(|fa| format!("{work} {fa}"));
        assert_eq!(runs, settings);
    }
}

#[cfg(unix)]
#[test]
fn decoding_against_llama_cpp_reads_as_text() {
    let folder = Folder::with_model();
    let program = fake_llama_bench(folder.path(), 250);
    let text = folder.text(&[
        "bench",
        "decode",
        "--tokens",
        "4",
        "--runs",
        "1",
        "--against",
        "llama.cpp",
        "--llama-bench",
        program.to_str().expect("UTF-8"),
    ]);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[0].starts_with("decode of 4 tokens at depth 0"));
    assert!(lines[1].starts_with("llama.cpp 77 (abc1234), flash attention on: 250.0 tokens/s"));
    assert!(lines[2].starts_with("ours / theirs: "));
    let log = std::fs::read_to_string(folder.path().join("log")).expect("log");
    assert!(log.lines().all(|run| run.contains("-p 0 -n 4 -d 0")));
}

#[test]
fn a_baseline_that_cannot_be_had_is_said_in_one_sentence_with_what_to_do() {
    let folder = Folder::with_model();
    let fails = |program: &Path| {
        let output = folder.run(&[
            "bench",
            "decode",
            "--runs",
            "1",
            "--against",
            "llama.cpp",
            "--llama-bench",
            program.to_str().expect("UTF-8"),
        ]);
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(errors.lines().count(), 1, "{errors}");
        assert!(
            errors.contains(program.to_str().expect("UTF-8")),
            "{errors}"
        );
        errors
    };
    let missing = fails(&folder.path().join("nowhere"));
    assert!(missing.contains("was not found") && missing.contains("--llama-bench"));
    #[cfg(unix)]
    for (says, program) in [("failed", "false"), ("printed no measurement", "true")] {
        let error = fails(Path::new(program));
        assert!(error.contains(says) && error.contains("README"), "{error}");
    }
}

#[test]
fn only_a_known_baseline_and_only_its_own_flags_are_taken() {
    let folder = Folder::empty();
    for flags in [["--against", "other"], ["--llama-bench", "x"]] {
        let arguments = [&["bench", "decode"][..], &flags].concat();
        assert_eq!(folder.run(&arguments).status.code(), Some(2), "{flags:?}");
    }
}

#[test]
fn what_a_format_of_keys_and_values_costs_is_measured_against_f16() {
    let folder = Folder::with_model();
    let text = folder.path().join("text.txt");
    std::fs::write(&text, "the cache and the model of the world ".repeat(12)).expect("text");
    let text = text.to_str().expect("a path");
    let bench = ["bench", "kv-quality", "--text", text];
    let rows = folder.json(&bench);
    let names: Vec<_> = rows.iter().map(|row| string(row, "kv")).collect();
    assert_eq!(names, ["f16", "bf16", "q8", "q4"]);
    assert_eq!(rows[0]["perplexity_change_percent"], 0.0);
    assert_eq!(rows[0]["mean_kl"], 0.0);
    assert_eq!(rows[0]["top1_agreement"], 1.0);
    assert!(rows[1]["mean_kl"].as_f64().is_some_and(|kl| kl > 0.0));
    // The heads of this model have 16 elements, which quantized formats cannot have.
    assert_eq!(string(&rows[2], "used"), "f16");
    assert!(string(&rows[2], "reason").contains("16"));
    for row in &rows {
        // 2 sides, 2 layers, 2 heads of 16 elements of 2 bytes.
        assert_eq!(number(row, "bytes_per_token"), 2 * 2 * 2 * 16 * 2, "{row}");
        assert!(row["perplexity"].as_f64().is_some_and(|p| p > 1.0), "{row}");
    }

    let missing = folder.run(&["bench", "kv-quality", "--text", "nowhere.txt"]);
    assert!(!missing.status.success());
    assert!(String::from_utf8_lossy(&missing.stderr).contains("nowhere.txt"));
    let nonsense = folder.run(&[&bench[..], &["--kv", "q5"]].concat());
    assert!(!nonsense.status.success());
    assert!(String::from_utf8_lossy(&nonsense.stderr).contains("q8"));
}
