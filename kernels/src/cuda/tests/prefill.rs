//! Attention of many queries, with and without tensor cores.

use ptx_interpreter::Order;

use super::balance::KINDS;
use super::case::Case;
use crate::layout::tests::formats;
use crate::random::bits;
use crate::{KvDtype, KvFormat};

#[test]
fn prefill_equals_the_reference_in_every_format_and_head_size() {
    for (i, format) in formats().enumerate() {
        for head_dim in [64, 96, 128, 256] {
            let case = Case {
                offset: 50,
                tokens: 30,
                kv_heads: if head_dim == 64 { 2 } else { 1 },
                group: 2,
                ..Case::new(format, head_dim)
            };
            case.check_prefill(80, i);
            // The fallback for one head size of each format, and all formats for one.
            if head_dim == 64 || i == head_dim / 32 {
                case.check_prefill(75, i + 1);
            }
            if format.key.is_rotated() {
                let case = Case {
                    balance: Some(KINDS[(i + head_dim / 32) % 2]),
                    kv_heads: 1,
                    tokens: 20,
                    ..case
                };
                case.check_prefill(80, i);
                if head_dim == 64 {
                    case.check_prefill(75, i + 1);
                }
            }
        }
    }
    for head_dim in [2, 20, 80, 160, 250] {
        let case = Case {
            offset: 30,
            tokens: 9,
            ..Case::new("bf16/f16".parse().unwrap(), head_dim)
        };
        case.check_prefill(75, 0);
    }
}

#[test]
fn prefill_equals_the_reference_for_every_group_of_heads() {
    for group in [1, 3, 4, 7, 8, 16] {
        let case = Case {
            group,
            kv_heads: 1,
            offset: 61,
            tokens: 11,
            balance: (group != 3).then_some(KINDS[group % 2]),
            ..Case::new(KvFormat::Q8, 64)
        };
        for target in [75, 80] {
            case.check_prefill(target, group);
        }
    }
}

#[test]
fn prefill_equals_the_reference_at_the_edges_of_blocks_with_windows_caps_and_sinks() {
    for (i, (offset, tokens)) in [
        (0, 1),
        (0, 64),
        (0, 65),
        (63, 2),
        (64, 64),
        (127, 1),
        (65, 3),
        (1, 130),
        (200, 17),
        (20, 9),
    ]
    .into_iter()
    .enumerate()
    {
        for (j, window) in [None, Some(1), Some(20), Some(70)].into_iter().enumerate() {
            let case = Case {
                offset,
                tokens,
                window,
                kv_heads: 1,
                group: 2,
                balance: (j % 2 == 0).then_some(KINDS[(i + j / 2) % 2]),
                softcap: (i % 2 == 0).then_some(3.0),
                has_sinks: i % 3 == 0,
                ..Case::new(
                    if i % 2 == 0 || [20, 63].contains(&offset) {
                        KvFormat::Q4
                    } else {
                        KvFormat::F16
                    },
                    64,
                )
            };
            case.check_prefill(80, i);
            if tokens < 64 {
                case.check_prefill(75, i);
            }
        }
    }
}

#[test]
fn chunks_of_a_prefill_change_no_bit() {
    for (format, head_dim, window) in [
        (KvFormat::F16, 64, None),
        (KvFormat::Q8, 96, Some(50)),
        (KvFormat::same(KvDtype::Bf16), 64, Some(3)),
        (KvFormat::Q4, 64, None),
    ] {
        let case = Case {
            offset: 20,
            tokens: 90,
            kv_heads: 1,
            group: 3,
            window,
            balance: Some(KINDS[head_dim / 32 % 2]),
            has_sinks: window.is_some(),
            ..Case::new(format, head_dim)
        };
        for target in [75, 80] {
            let whole = case.prefilled(&[90], target, Order::Forward);
            let chunks = case.prefilled(&[1, 43, 2, 44], target, Order::Random(3));
            assert_eq!(bits(&whole), bits(&chunks), "{format} for {target}");
        }
    }
}
