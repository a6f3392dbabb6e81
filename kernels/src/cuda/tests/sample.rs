//! Sampling against a plain reference in f64.

use ptx_interpreter::{Memory, Order};

use super::device::{ORDERS, run};
use crate::cuda::{Cuts, UNDECIDED, sample_greedy, sample_top_k};
use crate::random::floats;

fn greedy(rows: &[f32], vocab: usize, order: Order) -> Vec<u32> {
    let mut memory = Memory::new();
    let logits = memory.floats("logits", rows);
    let tokens = memory.uninitialised("tokens", rows.len() / vocab * 4);
    let (from, to) = (memory.address(logits), memory.address(tokens));
    let launch = sample_greedy(from, to, (rows.len() / vocab, vocab)).unwrap();
    run(&launch, &mut memory, 75, order);
    memory.read_words(tokens)
}

#[test]
fn greedy_takes_the_first_of_the_largest_numbers() {
    let nan = f32::NAN;
    for order in ORDERS {
        assert_eq!(greedy(&[0.0, 3.0, 3.0, nan], 4, order), [1]);
        assert_eq!(greedy(&[nan, f32::NEG_INFINITY], 2, order), [1]);
        assert_eq!(greedy(&[1.0, f32::INFINITY], 2, order), [1]);
        assert_eq!(greedy(&[1e31, f32::INFINITY], 2, order), [0]);
        assert_eq!(greedy(&[-0.0, 0.0, -1.0], 3, order), [0]);
        assert_eq!(greedy(&[nan; 5], 5, order), [0]);
    }
    let (vocab, mut rows) = (3001, floats(1, 2 * 3001));
    rows[vocab + 2999] = 1.0;
    let first = &rows[..vocab];
    let want = (0..vocab)
        .rev()
        .max_by(|a, b| first[*a].total_cmp(&first[*b]));
    assert_eq!(
        greedy(&rows, vocab, ORDERS[2]),
        [want.unwrap() as u32, 2999]
    );
}

fn sampled(logits: &[f32], draws: &[f64], cuts: Cuts, order: Order) -> Vec<u32> {
    let (vocab, rows) = (logits.len(), draws.len());
    let mut memory = Memory::new();
    let logits = memory.floats("logits", &logits.repeat(rows));
    let bits: Vec<u64> = draws.iter().map(|draw| draw.to_bits()).collect();
    let random = memory.longs("random", &bits);
    let tokens = memory.uninitialised("tokens", rows * 4);
    let [from, random, to] = [logits, random, tokens].map(|buffer| memory.address(buffer));
    let launch = sample_top_k(from, random, to, (rows, vocab), cuts).unwrap();
    run(&launch, &mut memory, 75, order);
    memory.read_words(tokens)
}

/// The sampler's steps in f64: the tokens left, most likely first, with their weights.
fn reference(logits: &[f32], cuts: Cuts) -> Vec<(u32, f64)> {
    let mut left: Vec<(u32, f64)> = logits
        .iter()
        .enumerate()
        .filter(|(_, logit)| !logit.is_nan())
        .map(|(id, logit)| (id as u32, f64::from(*logit)))
        .collect();
    left.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    left.truncate(cuts.top_k.unwrap_or(usize::MAX));
    let top = left[0].1;
    let weight = |logit: f64| (logit - top).exp();
    if let Some(top_p) = cuts.top_p {
        let total: f64 = left.iter().map(|c| weight(c.1)).sum();
        let mut reached = 0.0;
        let last = left.iter().position(|c| {
            reached += weight(c.1);
            reached >= f64::from(top_p) * total
        });
        left.truncate(last.map_or(left.len(), |last| last + 1));
    }
    if let Some(min_p) = cuts.min_p {
        let kept = left
            .iter()
            .take_while(|c| weight(c.1) >= f64::from(min_p))
            .count();
        left.truncate(kept.max(1));
    }
    let at = |logit: f64| ((logit - top) / f64::from(cuts.temperature)).exp();
    left.into_iter()
        .map(|(id, logit)| (id, at(logit)))
        .collect()
}

fn check(logits: &[f32], cuts: Cuts, order: Order) {
    let left = reference(logits, cuts);
    let total: f64 = left.iter().map(|c| c.1).sum();
    // Draws in the middle of each of some tokens' share, so that rounding decides nothing.
    let picked: Vec<usize> = (0..4).map(|i| i * left.len() / 4).collect();
    let before = |i: usize| left[..i].iter().map(|c| c.1).sum::<f64>();
    let draws: Vec<f64> = picked
        .iter()
        .map(|i| (before(*i) + left[*i].1 / 2.0) / total)
        .collect();
    let want: Vec<u32> = picked.iter().map(|i| left[*i].0).collect();
    assert_eq!(sampled(logits, &draws, cuts, order), want, "{cuts:?}");
}

const OPEN: Cuts = Cuts {
    top_k: None,
    top_p: None,
    min_p: None,
    temperature: 1.0,
};

#[test]
fn draws_take_the_tokens_that_the_cuts_leave_in_their_proportion() {
    let logits: Vec<f32> = floats(1, 3000).iter().map(|v| 6.0 * v).collect();
    let top_k = |k| Cuts {
        top_k: Some(k),
        ..OPEN
    };
    for (i, cuts) in [
        top_k(1),
        top_k(40),
        top_k(256),
        Cuts {
            top_p: Some(0.8),
            ..top_k(100)
        },
        Cuts {
            min_p: Some(0.9),
            ..top_k(100)
        },
        Cuts {
            temperature: 0.3,
            ..top_k(64)
        },
        // Without top-k, as far as the candidates go.
        Cuts {
            min_p: Some(0.6),
            ..OPEN
        },
        Cuts {
            top_p: Some(0.1),
            temperature: 2.0,
            ..OPEN
        },
    ]
    .into_iter()
    .enumerate()
    {
        check(&logits, cuts, ORDERS[i % 3]);
    }
    // Few enough to be ranked all.
    check(&logits[..200], OPEN, ORDERS[1]);
}

#[test]
fn equal_logits_are_ranked_by_id_and_none_that_is_no_number_is_taken() {
    let mut logits = vec![1.0; 700];
    logits[..5].fill(f32::NAN);
    logits[300..310].fill(2.0);
    let cuts = Cuts {
        top_k: Some(20),
        ..OPEN
    };
    check(&logits, cuts, ORDERS[2]);
    assert_eq!(sampled(&[f32::NAN; 9], &[0.5], cuts, ORDERS[0]), [0]);
    assert_eq!(
        sampled(&[f32::NEG_INFINITY; 9], &[0.0], cuts, ORDERS[0]),
        [0]
    );
}

#[test]
fn what_needs_more_candidates_than_are_ranked_is_left_to_the_host() {
    let logits = vec![0.0; 1000];
    let undecided = |cuts| sampled(&logits, &[0.5], cuts, ORDERS[0]) == [UNDECIDED];
    assert!(undecided(OPEN));
    assert!(undecided(Cuts {
        top_p: Some(0.9),
        ..OPEN
    }));
    assert!(undecided(Cuts {
        min_p: Some(0.5),
        ..OPEN
    }));
    assert!(!undecided(Cuts {
        top_p: Some(0.2),
        ..OPEN
    }));
}
