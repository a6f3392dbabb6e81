//! Passes over slots that are being filled.

use std::time::Duration;

use super::*;
use crate::Part;

/// Tokens in the slots that are filled: two blocks.
const BEFORE: usize = 128;
/// Their slots, as in `Model::place`.
const FILLED: [u32; 2] = [3, 0];

/// The parts of a slot at its layers, in no order of slots.
fn by_layer(parts: Vec<Vec<Part<'_>>>) -> Vec<Vec<(usize, Part<'_>)>> {
    let mut layers: Vec<Vec<_>> = parts[0].iter().map(|_| Vec::new()).collect();
    for (slot, parts) in parts.into_iter().enumerate().rev() {
        for (layer, part) in parts.into_iter().enumerate() {
            layers[layer].push((slot, part));
        }
    }
    layers
}

#[test]
fn a_layer_is_attended_only_when_it_is_there() {
    for format in [KvFormat::F16, KvFormat::Q8] {
        let model = model_with(GgmlDType::Q4_1, RopeKind::Halves, true, format);
        // By panels, and by rows.
        for n in [70, 3] {
            let x = floats(5, (BEFORE + n) * HIDDEN);
            let (want, slots) = model.run(&x, &[BEFORE, BEFORE + n], &Team::new(2));
            for (threads, last_only) in [(1, false), (2, true), (3, false), (4, true)] {
                // Whatever is read too early is not a number.
                let (pool, mut rest) = (model.pool(), x[BEFORE * HIDDEN..].to_vec());
                let layer_bytes = model.layout().layer_bytes();
                let fill = |layers: Vec<Vec<(usize, Part)>>| {
                    for (layer, parts) in layers.into_iter().enumerate() {
                        std::thread::sleep(Duration::from_millis(5));
                        for (slot, mut part) in parts {
                            let bytes = &slots[FILLED[slot] as usize][layer * layer_bytes..];
                            part.as_mut().copy_from_slice(&bytes[..layer_bytes]);
                            part.ready();
                        }
                    }
                };
                let passed = pool.fill(&FILLED, 1, |parts| {
                    std::thread::scope(|scope| {
                        scope.spawn(|| fill(by_layer(parts)));
                        let place = model.place(&pool, BEFORE);
                        let team = Team::new(threads);
                        model.layers.forward(&team, &mut rest, place, last_only)
                    })
                });
                passed.unwrap().unwrap();
                let shown = if last_only { rest.len() - HIDDEN } else { 0 };
                assert!(
                    bits(&rest[shown..]) == bits(&want[BEFORE * HIDDEN + shown..]),
                    "{format}, {n} tokens, {threads} threads"
                );
                for (slot, want) in slots.iter().enumerate() {
                    let mut bytes = vec![0; model.layout().slot_bytes()];
                    pool.read_slot(slot as u32, &mut bytes).unwrap();
                    assert!(&bytes == want, "slot {slot}");
                }
            }
        }
    }
}

#[test]
fn a_part_that_never_comes_ends_the_pass_and_hangs_nobody() {
    let model = model(GgmlDType::F32, RopeKind::Halves, true);
    for threads in 1..=4 {
        let team = Team::new(threads);
        for (n, lost, last_only) in [(70, 0, true), (70, 1, false), (70, 2, true), (3, 1, true)] {
            let (pool, mut x) = (model.pool(), floats(6, n * HIDDEN));
            let fill = |layers: Vec<Vec<(usize, Part)>>| {
                for (layer, parts) in layers.into_iter().enumerate() {
                    std::thread::sleep(Duration::from_millis(2));
                    for (slot, part) in parts {
                        match (layer, slot) == (lost, 1) {
                            true => drop(part),
                            false => part.ready(),
                        }
                    }
                }
            };
            let passed = pool.fill(&FILLED, 1, |parts| {
                std::thread::scope(|scope| {
                    scope.spawn(|| fill(by_layer(parts)));
                    let place = model.place(&pool, BEFORE);
                    model.layers.forward(&team, &mut x, place, last_only)
                })
            });
            assert!(
                matches!(passed.unwrap(), Err(Error::Unfilled)),
                "layer {lost}"
            );
            // The same threads and slots go on as if nothing had been.
            let mut x = floats(6, 200 * HIDDEN);
            let place = model.place(&pool, 0);
            model.layers.forward(&team, &mut x, place, false).unwrap();
            assert!(x.iter().all(|x| x.is_finite()));
        }
    }
}

#[test]
fn tokens_never_go_into_a_slot_that_is_being_filled() {
    let model = model(GgmlDType::F32, RopeKind::Halves, true);
    let (pool, team) = (model.pool(), Team::new(2));
    let pass = |offset: usize| {
        let mut x = floats(7, 10 * HIDDEN);
        let place = model.place(&pool, offset);
        model.layers.forward(&team, &mut x, place, true)
    };
    let outcomes = pool.fill(&FILLED, 3, |parts| {
        parts.into_iter().flatten().for_each(Part::ready);
        (pass(0), pass(BEFORE - 5), pass(BEFORE))
    });
    assert!(matches!(
        outcomes.unwrap(),
        (
            Err(Error::Argument { .. }),
            Err(Error::Argument { .. }),
            Ok(())
        )
    ));
}
