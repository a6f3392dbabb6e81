//! What the tests above would notice: each barrier deleted, and shared memory 8 bytes too small. A mutation that no case here
//! finds is either one that the cases miss or a barrier that is not needed; both are wrong.

use candle_core::quantized::GgmlDType;
use ptx_interpreter::{Buffer, Memory, Module, Order};

use super::case::Case;
use super::device::{Sequence, layout, try_run};
use super::weights::{Case as Product, Kind, Prepared, matrix};
use crate::cuda::{
    Argument, Cuts, Launch, Rows, Source, add_rms_norm, sample_greedy, sample_top_k,
};
use crate::random::floats;
use crate::{KvFormat, RopeKind};

/// Launches with the memory they start from, and the buffers to compare afterwards.
struct Scene {
    memory: Memory,
    launches: Vec<Launch>,
    results: Vec<Buffer>,
}

impl Scene {
    /// The bytes that all launches leave, those of `source` run with the kernels of `module`; none if one fails.
    fn results(
        &self,
        source: Source,
        module: &Module,
        cut: u32,
        order: Order,
    ) -> Option<Vec<Vec<u8>>> {
        let mut memory = self.memory.clone();
        for launch in &self.launches {
            assert_eq!(launch.source, source);
            let launch = Launch {
                shared_bytes: launch.shared_bytes.saturating_sub(cut),
                ..launch.clone()
            };
            try_run(module, &launch, &mut memory, order).ok()?;
        }
        let bytes = |buffer: &Buffer| memory.bytes(*buffer).to_vec();
        Some(self.results.iter().map(bytes).collect())
    }
}

/// The text without its `n`th barrier, if it has so many.
fn without_barrier(text: &str, kernel: &str, n: usize) -> Option<String> {
    let start = text.find(&format!(".entry {kernel}(")).expect("the kernel");
    let end = text[start..]
        .find("\n}")
        .map_or(text.len(), |at| start + at);
    let barrier =
        |line: &str| line.trim() == "bar.sync \t0;" || line.trim().starts_with("bar.warp.sync");
    let mut at = start;
    let mut left = n;
    for line in text[start..end].split_inclusive('\n') {
        if barrier(line) {
            if left == 0 {
                return Some([&text[..at], &text[at + line.len()..]].concat());
            }
            left -= 1;
        }
        at += line.len();
    }
    None
}

/// Only that kernel of a text, so that parsing a mutation takes no time.
fn alone(text: &str, kernel: &str) -> String {
    let first = text.find(".visible .entry").expect("a kernel");
    let start = text
        .find(&format!(".visible .entry {kernel}("))
        .expect("the kernel");
    let end = text[start..]
        .find("\n}")
        .map_or(text.len(), |at| start + at + 2);
    [&text[..first], &text[start..end], "\n"].concat()
}

/// Every barrier of the kernels that the scenes launch is missed by some scene, and so are 8 bytes of shared memory.
fn check(source: Source, target: u32, scenes: &[Scene]) {
    let text = source.ptx(target).unwrap();
    let mut kernels: Vec<&str> = scenes
        .iter()
        .map(|scene| scene.launches[0].kernel.as_str())
        .collect();
    kernels.dedup();
    for kernel in kernels {
        let text = alone(text, kernel);
        let module = Module::parse(&text).unwrap();
        let scenes: Vec<&Scene> = scenes
            .iter()
            .filter(|scene| scene.launches[0].kernel == kernel)
            .collect();
        let order = Order::Random(5);
        let want: Vec<_> = scenes
            .iter()
            .map(|scene| scene.results(source, &module, 0, order))
            .collect();
        assert!(want.iter().all(Option::is_some), "{kernel} itself");
        let is_noticed = |module: &Module, cut| {
            let mut cases = scenes.iter().zip(&want);
            cases.any(|(scene, want)| scene.results(source, module, cut, order) != *want)
        };
        let mut barriers = 0;
        while let Some(text) = without_barrier(&text, kernel, barriers) {
            let mutated = Module::parse(&text).unwrap();
            assert!(
                is_noticed(&mutated, 0),
                "{kernel} for {target} without barrier {barriers}"
            );
            barriers += 1;
        }
        assert!(barriers > 0, "{kernel} has no barriers");
        if scenes[0].launches[0].shared_bytes > 0 {
            assert!(
                is_noticed(&module, 8),
                "{kernel} for {target} with less shared memory"
            );
        }
    }
}

#[test]
fn kv_write_misses_each_of_its_barriers_and_its_last_bytes() {
    let scenes = [KvFormat::F16, KvFormat::Q8].map(|format| {
        let layout = layout(format, 1, 64);
        let mut memory = Memory::new();
        let sequence = Sequence::new(&mut memory, layout, 64, None);
        let x = memory.floats("rows", &floats(1, 16 * 64));
        let rows = Rows {
            address: memory.address(x),
            stride: 64,
        };
        let launch = sequence.at(&mut memory, 16).write(rows, rows, 16).unwrap();
        Scene {
            memory,
            launches: vec![launch],
            results: sequence.slots,
        }
    });
    check(Source::KvWrite, 75, &scenes);
}

#[test]
fn key_offsets_miss_their_barrier_and_their_last_bytes() {
    // As many blocks as a block of threads has columns.
    let case = Case {
        kv_heads: 1,
        group: 2,
        offset: 31 * 64,
        balance: Some(RopeKind::Halves),
        ..Case::new(KvFormat::Q8, 64)
    };
    let (mut memory, sequence) = case.sequence();
    let place = (case.offset, case.tokens);
    let (mut launches, _) = case.prefill(&mut memory, &sequence, place, 75);
    let table = memory.uninitialised("key offsets", 4 * case.group * 33);
    launches.truncate(1);
    launches[0].arguments[1] = Argument::Address(memory.address(table));
    let scene = Scene {
        memory,
        launches,
        results: vec![table],
    };
    check(Source::KeyOffsets, 75, &[scene]);
}

#[test]
fn norms_miss_each_of_their_barriers_and_their_last_bytes() {
    let mut memory = Memory::new();
    let (x, weight) = (
        memory.floats("x", &floats(1, 512)),
        memory.floats("weight", &floats(2, 512)),
    );
    let (at, weight) = (memory.address(x), memory.address(weight));
    let launch = add_rms_norm(at, 0, weight, at, (1, 512), 1e-5).unwrap();
    let scene = Scene {
        memory,
        launches: vec![launch],
        results: vec![x],
    };
    check(Source::RmsNorm, 75, &[scene]);
}

/// The first of the two kernels of `decode`, on cases that need all of its barriers.
#[test]
fn decoding_misses_each_of_its_barriers_and_its_last_bytes() {
    for target in [75, 80] {
        let mut scenes = Vec::new();
        for (group, head_dim) in [(1, 64), (4, 64), (8, 64), (1, 160), (4, 160), (8, 160)] {
            for format in [KvFormat::F16, KvFormat::Q8] {
                let case = Case {
                    kv_heads: 1,
                    group,
                    offset: 120,
                    ..Case::new(format, head_dim)
                };
                let (mut memory, sequence) = case.sequence();
                let (decode, _) = case.decode(&mut memory, &sequence, (120, 1), 128);
                scenes.push(Scene {
                    memory,
                    launches: vec![decode.split],
                    results: vec![decode.parts],
                });
            }
        }
        check(Source::AttentionDecode, target, &scenes);
    }
}

#[test]
fn prefill_misses_each_of_its_barriers_and_its_last_bytes() {
    for target in [75, 80] {
        let formats: &[&str] = match target {
            75 => &["f16", "q8"],
            _ => &["f16", "q4", "bf16"],
        };
        for head_dim in [64, 96, 128, 256] {
            if target == 75 && head_dim > 64 {
                // One kernel for all.
                continue;
            }
            let mut source = Source::AttentionPrefill;
            let mut scenes = Vec::new();
            for format in formats {
                let case = Case {
                    kv_heads: 1,
                    group: 1,
                    offset: 70,
                    tokens: 64,
                    ..Case::new(format.parse().unwrap(), head_dim)
                };
                let (mut memory, sequence) = case.sequence();
                let (launches, out) = case.prefill(&mut memory, &sequence, (70, 64), target);
                source = launches[0].source;
                scenes.push(Scene {
                    memory,
                    launches,
                    results: vec![out],
                });
            }
            check(source, target, &scenes);
        }
    }
}

#[test]
fn sampling_misses_each_of_its_barriers() {
    let mut scenes = Vec::new();
    for top_k in [None, Some(30), Some(0)] {
        let mut memory = Memory::new();
        let logits = memory.floats("logits", &floats(1, 2000));
        let random = memory.longs("random", &[0.3f64.to_bits()]);
        let tokens = memory.uninitialised("tokens", 4);
        let [from, random, to] = [logits, random, tokens].map(|buffer| memory.address(buffer));
        let launch = match top_k {
            None => sample_greedy(from, to, (1, 2000)),
            Some(_) => {
                let cuts = Cuts {
                    top_k,
                    top_p: Some(0.05),
                    min_p: None,
                    temperature: 1.0,
                };
                sample_top_k(from, random, to, (1, 2000), cuts)
            }
        };
        scenes.push(Scene {
            memory,
            launches: vec![launch.unwrap()],
            results: vec![tokens],
        });
    }
    check(Source::Sample, 75, &scenes);
}

/// Rows that need each barrier: of two segments, and of more than are held at once.
#[test]
fn products_by_lanes_miss_each_of_their_barriers_and_their_last_bytes() {
    for (kind, target) in [(Kind::Decode, 75), (Kind::Decode, 80), (Kind::Prefill, 75)] {
        let mut source = Source::Quantize;
        let scenes = [2, 66].map(|segments| {
            let matrix = matrix(GgmlDType::Q4_0, 16, segments * 256);
            let x = floats(1, 8 * segments * 256);
            let prepared = Product::new(&matrix, &x, kind, target).prepared();
            source = prepared.launches[0].source;
            scene(prepared)
        });
        check(source, target, &scenes);
    }
}

#[test]
fn products_on_tensor_cores_miss_each_of_their_barriers_and_their_last_bytes() {
    // Columns that fill both halves of the shared memory.
    for (format, cols, source) in [
        (GgmlDType::Q4K, 3 * 256, Source::ProductQ4K),
        (GgmlDType::Q8_0, 3 * 256, Source::ProductQ8_0),
        (GgmlDType::F16, 3 * 32, Source::ProductDenseMma),
        (GgmlDType::BF16, 3 * 32, Source::ProductDenseMma),
    ] {
        let matrix = matrix(format, 64, cols);
        let x = floats(1, 64 * cols);
        let prepared = Product::new(&matrix, &x, Kind::Prefill, 80).prepared();
        check(source, 80, &[scene(prepared)]);
    }
}

fn scene(prepared: Prepared) -> Scene {
    Scene {
        memory: prepared.memory,
        launches: prepared.launches,
        results: vec![prepared.out],
    }
}
