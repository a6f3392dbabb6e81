//! The measurements run to their end and report what they promise.

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
    assert!(
        rows.last()
            .is_some_and(|row| row["tokens_per_s_saving"].as_f64().is_some())
    );
}
