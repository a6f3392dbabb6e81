//! Attention of single queries, split over the context.

use ptx_interpreter::Order;

use super::balance::KINDS;
use super::case::Case;
use super::device::{ORDERS, run};
use crate::KvFormat;
use crate::layout::tests::formats;
use crate::random::bits;

#[test]
fn decoding_equals_the_reference_in_every_format_and_head_size() {
    for (i, format) in formats().enumerate() {
        for head_dim in [32, 64, 96, 128, 160, 256] {
            let case = Case::new(format, head_dim);
            // What differs between the targets does not depend on the head's size.
            match head_dim {
                64 | 160 => case.check_decode(i),
                _ => case.check_decode_for([80].into_iter(), i),
            }
            if format.key.is_rotated() && [64, 96, 128, 256].contains(&head_dim) {
                let case = Case {
                    balance: Some(KINDS[(i + head_dim / 32) % 2]),
                    ..case
                };
                case.check_decode_for([80].into_iter(), i);
            }
        }
    }
    for head_dim in [2, 20, 80, 250] {
        Case::new("f16/bf16".parse().unwrap(), head_dim).check_decode(0);
    }
}

#[test]
fn decoding_equals_the_reference_for_every_group_of_heads() {
    for group in [1, 2, 4, 5, 7, 8, 12, 16] {
        for format in [KvFormat::F16, KvFormat::Q8, KvFormat::Q4] {
            let case = Case {
                group,
                kv_heads: 1,
                balance: (format == KvFormat::Q4).then_some(KINDS[group % 2]),
                ..Case::new(format, 64)
            };
            case.check_decode(group);
        }
    }
}

#[test]
fn decoding_equals_the_reference_at_the_edges_of_tiles_blocks_and_splits() {
    for (i, offset) in [
        0, 1, 14, 15, 16, 20, 63, 64, 65, 127, 128, 129, 255, 256, 400,
    ]
    .into_iter()
    .enumerate()
    {
        for (j, window) in [None, Some(1), Some(17), Some(130)].into_iter().enumerate() {
            let case = Case {
                offset,
                window,
                kv_heads: 1,
                balance: (j % 2 == 0).then_some(KINDS[(i + j / 2) % 2]),
                softcap: (i % 2 == 0).then_some(3.0),
                has_sinks: i % 3 == 0,
                ..Case::new(
                    if i % 4 == 0 || [1, 20, 63, 64, 65].contains(&offset) {
                        KvFormat::Q8
                    } else {
                        KvFormat::F16
                    },
                    64,
                )
            };
            case.check_decode(i);
        }
    }
}

#[test]
fn several_tokens_at_once_have_the_bits_of_each_alone_in_any_bucket_and_order() {
    for format in [KvFormat::F16, KvFormat::Q4] {
        let case = Case {
            offset: 125,
            tokens: 6,
            balance: Some(KINDS[1]),
            ..Case::new(format, 96)
        };
        let all = case.decoded(80, Order::Forward);
        let (memory, sequence) = case.sequence();
        let row = case.heads() * case.head_dim;
        for i in 0..case.tokens {
            let mut memory = memory.clone();
            let place = (case.offset + i, 1);
            let (decode, out) = case.decode(&mut memory, &sequence, place, 128 * (2 + i));
            for launch in decode.launches() {
                run(launch, &mut memory, 80, ORDERS[i % 3]);
            }
            assert_eq!(bits(&memory.read_floats(out)), bits(&all[i * row..][..row]));
        }
    }
}
