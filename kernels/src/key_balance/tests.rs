//! What a balance of keys promises.

use super::*;
use crate::random::floats;

const DIM: usize = 64;

/// Sums over keys with a mean, a few of whose elements are large where the queries are small.
fn sums() -> (HeadSums, Vec<Vec<f32>>) {
    let mut sums = HeadSums::new(&floats(99, DIM));
    let keys: Vec<Vec<f32>> = (0..50)
        .map(|token| {
            let noise = floats(token, DIM);
            (0..DIM)
                .map(|i| 3.0 + noise[i] * if i < 4 { 20.0 } else { 0.5 })
                .collect()
        })
        .collect();
    for (token, key) in keys.iter().enumerate() {
        let queries = floats(1000 + token as u64, 3 * DIM);
        sums.add(key, &queries);
    }
    (sums, keys)
}

#[test]
fn pairs_share_a_factor_and_large_keys_get_a_small_one() {
    let (sums, _) = sums();
    for kind in [RopeKind::Interleaved, RopeKind::Halves] {
        let balance = sums.balance(kind, &[1.0; DIM / 2]);
        for i in 0..DIM / 2 {
            let [a, b] = kind.pair(i, DIM);
            assert_eq!(balance.factors[a], balance.factors[b]);
        }
        assert!(
            balance.factors[0] < 0.5 * balance.factors[20],
            "{balance:?}"
        );
        assert!(balance.mean.iter().all(|mean| (mean - 3.0).abs() < 6.0));
    }
}

#[test]
fn balanced_scores_and_what_the_center_adds_are_the_scores() {
    let (sums, keys) = sums();
    for kind in [RopeKind::Interleaved, RopeKind::Halves] {
        let balance = sums.balance(kind, &[1.0; DIM / 2]);
        let angles: Vec<f32> = (0..DIM / 2).map(|i| 33.0 * 0.8f32.powi(i as i32)).collect();
        let (cos, sin): (Vec<_>, Vec<_>) = angles.iter().map(|a| (a.cos(), a.sin())).unzip();
        let (mut center, query) = (Vec::new(), floats(7, DIM));
        let mut balanced = query.clone();
        balance.queries(&mut balanced);
        hadamard::rotate(&mut balanced, DIM);
        balance.rotated_center((&cos, &sin), kind, &mut center);
        let dot = |a: &[f32], b: &[f32]| -> f32 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
        let lacking = dot(&balanced, &center);
        balance.rotated_first(&mut center);
        let lacks_first = dot(&balanced, &center);
        for (position, key) in keys.iter().enumerate() {
            let mut key = key.clone();
            let want = dot(&query, &key);
            balance.key(&mut key, position, (&cos, &sin), kind, &mut center);
            hadamard::rotate(&mut key, DIM);
            let lacking = if position == 0 { lacks_first } else { lacking };
            let got = dot(&balanced, &key) + lacking;
            assert!((got - want).abs() < 1e-3, "{got} {want}");
        }
    }
}

#[test]
fn what_turns_within_a_block_is_left_out_of_the_mean() {
    let angles = |speed: f32| (0..BLOCK_TOKENS).map(move |position| position as f32 * speed);
    let left = |speed: f32| {
        let (cos, sin): (Vec<_>, Vec<_>) = angles(speed).map(|a| (a.cos(), a.sin())).unzip();
        shortening(&cos, &sin, 1)[0]
    };
    assert!(left(1e-4) > 0.999);
    assert!(left(1.0).abs() < 0.05);
    assert!((0.3..0.9).contains(&left(0.05)), "{}", left(0.05));
}

#[test]
fn heads_that_saw_nothing_or_no_number_are_left_as_they_are() {
    let mut broken = HeadSums::new(&[f32::NAN; DIM]);
    broken.add(&[f32::NAN; DIM], &[f32::INFINITY; DIM]);
    for sums in [HeadSums::new(&[0.0; DIM]), broken] {
        let balance = sums.balance(RopeKind::Halves, &[1.0; DIM / 2]);
        assert_eq!(
            balance,
            HeadBalance::new(vec![0.0; DIM], vec![0.0; DIM], vec![1.0; DIM])
        );
    }
}

#[test]
fn numbers_give_the_same_balance_again_and_others_are_refused() {
    let layout = KvLayout {
        num_layers: 1,
        num_kv_heads: 1,
        head_dim: DIM,
        format: crate::KvFormat::Q8,
    };
    let angles = vec![0.5; BLOCK_TOKENS * DIM / 2];
    let balance = KeyBalance::of(&[sums().0], (&angles, &angles), RopeKind::Halves);
    let mut numbers = balance.numbers();
    assert_eq!(
        KeyBalance::from_numbers(&numbers, &layout).unwrap(),
        balance
    );
    assert!(KeyBalance::from_numbers(&numbers[1..], &layout).is_err());
    numbers[2 * DIM] = 0.0;
    assert!(KeyBalance::from_numbers(&numbers, &layout).is_err());
}
