//! Launches that do not fit, and texts that are what they say.

use ptx_interpreter::Module;

use super::device::layout;
use crate::cuda::{
    Attention, Balance, Cuts, KeyOffsets, Kv, Rows, Source, add_rms_norm, rope, sample_top_k,
    swiglu,
};
use crate::{AttentionParams, KvFormat, RopeKind};

fn kv(head_dim: usize) -> Kv {
    Kv {
        layout: layout(KvFormat::F16, 2, head_dim),
        layer: 1,
        blocks: 0,
        offset: 0,
        balance: None,
    }
}

fn attention(num_heads: usize, head_dim: usize) -> Attention {
    Attention {
        kv: kv(head_dim),
        num_heads,
        params: AttentionParams {
            scale: 1.0,
            window: None,
            softcap: None,
        },
        sinks: 0,
        key_offsets: None,
    }
}

#[test]
fn sizes_that_do_not_fit_are_errors_before_anything_runs() {
    let rows = Rows {
        address: 0,
        stride: 64,
    };
    assert!(kv(64).write(rows, rows, 1).is_ok());
    assert!(kv(64).write(rows, rows, 0).is_err());
    assert!(kv(258).write(rows, rows, 1).is_err());
    assert!(kv(63).write(rows, rows, 1).is_err());
    let other_layer = Kv { layer: 2, ..kv(64) };
    assert!(other_layer.write(rows, rows, 1).is_err());
    assert!(attention(4, 64).prefill(0, 0, 1, 80).is_ok());
    assert!(attention(3, 64).prefill(0, 0, 1, 80).is_err());
    assert!(attention(0, 64).decode(0, 0, 0, 1, 1).is_err());
    assert!(attention(4, 64).decode(0, 0, 0, 0, 1).is_err());
    let mut blind = attention(4, 64);
    blind.params.window = Some(0);
    assert!(blind.prefill(0, 0, 1, 75).is_err());
    assert!(rope(rows, (1, 1, 7), (0, 0), 0, RopeKind::Halves).is_err());
    assert!(rope(rows, (70_000, 1, 8), (0, 0), 0, RopeKind::Halves).is_err());
    assert!(add_rms_norm(0, 0, 0, 0, (0, 8), 0.0).is_err());
    assert!(swiglu(0, 0, 0, u32::MAX as usize).is_err());
    let cuts = Cuts {
        top_k: Some(257),
        top_p: None,
        min_p: None,
        temperature: 1.0,
    };
    assert!(sample_top_k(0, 0, 0, (1, 1000), cuts).is_err());
}

#[test]
fn balanced_keys_need_a_table_of_offsets_and_others_get_none() {
    let mut attention = attention(4, 64);
    let table = KeyOffsets {
        address: 256,
        positions: 100,
    };
    attention.kv.balance = Some(Balance {
        numbers: 0,
        cos: 0,
        sin: 0,
        kind: RopeKind::Halves,
    });
    // Keys that are not rotated.
    assert!(attention.fill_key_offsets(0, 1).unwrap().is_none());
    assert_eq!(attention.key_offsets_bytes(5, 100), 0);
    assert!(attention.prefill(0, 0, 1, 80).is_ok());
    attention.kv.layout.format = KvFormat::Q8;
    // Position 0 and two blocks.
    assert_eq!(attention.key_offsets_bytes(5, 100), 4 * 5 * 4 * 3);
    assert!(attention.fill_key_offsets(0, 1).is_err());
    assert!(attention.prefill(0, 0, 1, 80).is_err());
    assert!(attention.decode(0, 0, 0, 1, 100).is_err());
    attention.key_offsets = Some(table);
    assert!(attention.fill_key_offsets(0, 1).unwrap().is_some());
    assert!(attention.prefill(0, 0, 1, 80).is_ok());
    assert!(attention.decode(0, 0, 0, 1, 100).is_ok());
}

#[test]
fn tensor_cores_are_used_where_the_device_the_heads_and_the_formats_allow() {
    let source = |format: &str, head_dim, compute_capability| {
        let mut attention = attention(4, head_dim);
        attention.kv.layout.format = format.parse().unwrap();
        attention
            .prefill(0, 0, 1, compute_capability)
            .unwrap()
            .source
    };
    assert_eq!(source("q8", 128, 80), Source::AttentionPrefillMma);
    assert_eq!(source("f16/q4", 64, 120), Source::AttentionPrefillMma);
    assert_eq!(source("bf16", 96, 90), Source::AttentionPrefillMma);
    assert_eq!(source("q8", 128, 75), Source::AttentionPrefill);
    assert_eq!(source("bf16/q8", 128, 80), Source::AttentionPrefill);
    assert_eq!(source("f16", 80, 80), Source::AttentionPrefill);
}

#[test]
fn every_text_is_for_its_target_and_the_oldest_devices_get_none() {
    for source in Source::ALL {
        let texts = source.texts();
        assert!(texts.is_sorted_by(|a, b| a.0 < b.0));
        assert_eq!(source.ptx(texts[0].0 - 1), None);
        assert_eq!(source.ptx(999), Some(texts[texts.len() - 1].1));
        for (least, text) in texts {
            assert!(
                text.contains(&format!(".target sm_{least}\n")),
                "{source:?}"
            );
            assert!(!Module::parse(text).unwrap().kernels().is_empty());
        }
    }
}
