//! The plan: what it says is what is then used, and "fits" means fits.

use std::path::PathBuf;

use engine::machine::Machine;
use engine::{Circumstances, DiskPlan, MemoryPlan, Verdict, plan_of};
use kernels::KvFormat;
use tests::default_model;

const MIB: u64 = 1 << 20;

fn model() -> PathBuf {
    default_model()
}

/// A machine that leaves `room` bytes to this process.
fn with_room(room: u64) -> Circumstances {
    Circumstances {
        machine: Some(Machine {
            total_bytes: room + 1024 * MIB,
            available_bytes: room,
            process_bytes: 0,
        }),
        threads: 4,
        ..Circumstances::default()
    }
}

/// Bytes of keys and values of the default model, in q8.
const PER_TOKEN: u64 = 12_240;

fn plan(context: Option<u64>, around: &Circumstances) -> MemoryPlan {
    plan_of(&model(), context, KvFormat::Q8, around).expect("plan")
}

/// What does not depend on the context, nearly: the angles of the context are in it.
fn fixed(plan: &MemoryPlan) -> u64 {
    plan.total_bytes - plan.kv_bytes
}

#[test]
#[cfg(target_os = "linux")]
fn what_is_planned_is_what_is_used_and_giving_back_gives_at_least_the_weights() {
    let folder = tempfile::tempdir().expect("folder");
    let model = model();
    let model = model.to_str().expect("UTF-8");
    let rows = tests::Cli::new(folder.path())
        .run(&["bench", "memory", "--model", model, "--tokens", "1500"]);
    let row = rows.last().expect("a row");
    let number = |name: &str| {
        row[name]
            .as_u64()
            .unwrap_or_else(|| panic!("no {name} in {row}"))
    };
    assert!(number("prompt_tokens") > 1300, "{row}");
    let (planned, measured) = (number("planned_bytes"), number("measured_bytes"));
    let off = (measured as f64 - planned as f64) / planned as f64;
    assert!(off.abs() <= 0.05, "{:+.1} %: {row}", 100.0 * off);
    let weights = number("weights_bytes");
    assert!(number("freed_bytes") >= weights, "{row}");
    assert!(number("released_bytes") + weights <= measured, "{row}");
}

#[test]
fn the_parts_are_counted_from_the_header() {
    let context = 8192;
    let plan = plan(Some(context), &with_room(4096 * MIB));
    assert_eq!(plan.kv.format, "q8");
    assert_eq!(plan.kv.bytes_per_token, PER_TOKEN);
    assert_eq!(plan.kv_bytes, context * PER_TOKEN);
    // 98 MB of weights as Q4_1, which is packed without loss or growth but for the norms.
    let file = std::fs::metadata(model()).expect("file").len();
    assert!(
        plan.weights_bytes < file && plan.weights_bytes > file / 100 * 90,
        "{plan:?}"
    );
    assert_eq!(
        plan.total_bytes,
        plan.weights_bytes + plan.kv_bytes + plan.scratch_bytes + plan.runtime_bytes
    );
    assert_eq!(plan.others_bytes, Some(1024 * MIB));
}

#[test]
fn it_fits_or_fits_with_less_or_says_what_it_needs() {
    let fits = |room: u64| {
        let around = Circumstances {
            pool_bytes: Some(u64::MAX),
            ..with_room(room)
        };
        plan_of(&model(), Some(8192), KvFormat::F16, &around).expect("plan")
    };
    let all = fits(4096 * MIB);
    assert_eq!(all.verdict, Verdict::Fits);
    // One block beside the context.
    let exact = all.total_bytes + 64 * all.kv.bytes_per_token;
    assert_eq!(fits(exact).verdict, Verdict::Fits);
    let format = |name: &str| Verdict::FitsWith {
        format: name.into(),
    };
    assert_eq!(fits(exact - 1).verdict, format("q8"));
    // This model's keys must not be rounded to four bits, so that q4 becomes q8/q4.
    assert_eq!(
        fits(fixed(&all) + all.kv_bytes * 34 / 64 - 1).verdict,
        format("q8/q4")
    );
    let none = fits(fixed(&all));
    assert_eq!(
        none.verdict,
        Verdict::Needs {
            needed_bytes: all.total_bytes
        }
    );
    assert_eq!(
        (none.longest_context_tokens, none.resident_conversations),
        (0, 0)
    );
    assert_eq!(
        plan(None, &Circumstances::default()).verdict,
        Verdict::Unknown
    );
}

#[test]
fn the_longest_context_fits_and_one_block_more_does_not() {
    for room in [160, 200, 250, 300].map(|mib| mib * MIB) {
        let around = Circumstances {
            pool_bytes: Some(u64::MAX),
            ..with_room(room)
        };
        let longest = plan(Some(4096), &around).longest_context_tokens;
        assert!(longest > 0 && longest.is_multiple_of(64), "{longest}");
        // The angles are counted for the context that was asked, so ask for one of the same power of two.
        let at = |tokens: u64| plan(Some(tokens), &around).verdict;
        if (2049..=4096).contains(&longest) {
            assert_eq!(at(longest), Verdict::Fits, "{longest} in {room}");
            assert_ne!(at(longest + 64), Verdict::Fits, "{longest} in {room}");
        }
    }
}

#[test]
fn the_pool_is_a_share_of_what_is_left_and_holds_a_context_where_it_can() {
    let context = 8192 * PER_TOKEN;
    for room in [180, 250, 330, 400, 1000, 10_000, 100_000].map(|mib| mib * MIB) {
        let plan = plan(None, &with_room(room));
        let left = room - fixed(&plan);
        assert!(plan.pool_bytes <= left.max(64 * MIB), "{room}: {plan:?}");
        assert!(plan.pool_bytes <= 16 << 30, "{room}: {plan:?}");
        if left / 10 * 9 > context + 64 * PER_TOKEN {
            assert_eq!(plan.verdict, Verdict::Fits, "{room}");
        }
        assert_eq!(
            plan.resident_conversations,
            plan.pool_bytes.min(left) / (4096 * PER_TOKEN)
        );
    }
    // What the user decided is what holds.
    let decided = Circumstances {
        pool_bytes: Some(100 * MIB),
        ..with_room(4096 * MIB)
    };
    assert_eq!(plan(None, &decided).pool_bytes, 100 * MIB);
    assert!(plan(None, &decided).longest_context_tokens * PER_TOKEN < 100 * MIB);
}

#[test]
fn a_context_that_is_taken_at_once_is_counted_whatever_is_asked() {
    let around = |room: u64, reserves_context| Circumstances {
        pool_bytes: Some(u64::MAX),
        reserves_context,
        ..with_room(room)
    };
    let used = plan(Some(100), &around(4096 * MIB, false));
    let reserved = plan(Some(100), &around(4096 * MIB, true));
    assert_eq!(used.reserved_bytes, 0);
    assert_eq!(reserved.reserved_bytes, (8192 + 64) * PER_TOKEN);
    assert_eq!(
        reserved.total_bytes - used.total_bytes,
        reserved.reserved_bytes - used.kv_bytes
    );
    assert_eq!(reserved.loaded_bytes(), reserved.total_bytes);
    let exact = reserved.total_bytes;
    assert_eq!(plan(Some(100), &around(exact, true)).verdict, Verdict::Fits);
    let less = plan(Some(100), &around(exact - 1, true)).verdict;
    assert_ne!(less, Verdict::Fits);
    assert_eq!(
        plan(Some(100), &around(exact - 1, false)).verdict,
        Verdict::Fits
    );
}

#[test]
fn the_disk_holds_what_its_budget_and_its_free_space_allow() {
    let conversation = 4096 * PER_TOKEN;
    let on = |budget, used, free| {
        let disk = DiskPlan {
            budget_bytes: budget,
            used_bytes: used,
            free_bytes: free,
            conversations: 0,
        };
        plan(
            None,
            &Circumstances {
                disk,
                ..with_room(4096 * MIB)
            },
        )
        .disk
        .conversations
    };
    assert_eq!(on(10 * conversation, 0, None), 10);
    assert_eq!(on(10 * conversation, 0, Some(3 * conversation)), 3);
    assert_eq!(
        on(10 * conversation, 2 * conversation, Some(3 * conversation)),
        5
    );
}
