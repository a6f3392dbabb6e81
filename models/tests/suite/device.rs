//! A model on a GPU: what it computes is what the CPU computes, and what it computes once it computes always. The GPU is the
//! interpreter of PTX behind a driver of its own.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use candle_core::quantized::GgmlDType;
use kernels::cuda::{Device, self_test};
use kernels::{BLOCK_TOKENS, KvFormat, KvPool, Part, Team};
use models::tiny::{self, TinyModel};
use models::{Architecture, DigestCache, LoadOptions, Model};

use crate::support::{load_in, tokens};

/// A device where kernels run as early as they may and copies as late, and one where it is the other way round.
fn in_both_orders() -> [Arc<Device>; 2] {
    static DEVICES: OnceLock<[Arc<Device>; 2]> = OnceLock::new();
    let open = || Device::open(0).expect("its device");
    DEVICES
        .get_or_init(|| ptx_driver::in_both_orders(open))
        .clone()
}

pub fn device() -> Arc<Device> {
    let [device, _] = in_both_orders();
    device
}

fn on_device(path: &Path, kv: KvFormat) -> Model {
    with_layers(path, kv, device(), None)
}

fn with_layers(
    path: &Path,
    kv: KvFormat,
    device: Arc<Device>,
    device_layers: Option<usize>,
) -> Model {
    let options = LoadOptions {
        kv,
        is_forced: true,
        device: Some(device),
        device_layers,
        ..LoadOptions::default()
    };
    Model::load_with(path, Team::new(2), &DigestCache::new(None), options).expect("it loads")
}

/// A pool where the model runs, and a table whose slots stand in reverse.
fn sequence(model: &Model, num_tokens: usize) -> (KvPool, Vec<u32>) {
    let blocks = num_tokens.div_ceil(BLOCK_TOKENS);
    let pool = model.pool(blocks + 1).expect("a pool");
    (0..=blocks as u32).for_each(|slot| pool.reserve(slot).expect("memory"));
    (pool, (1..=blocks as u32).rev().collect())
}

/// What a run left: logits of its last token, and the bytes of all blocks.
#[derive(Clone, PartialEq)]
struct Outcome {
    logits: Vec<f32>,
    blocks: Vec<Vec<u8>>,
}

/// Runs all tokens as a prompt but the last `sampled`, in chunks that end at `cuts`.
fn run(model: &Model, tokens: &[u32], cuts: &[usize], sampled: usize) -> Outcome {
    let (pool, table) = sequence(model, tokens.len());
    let prompt = tokens.len() - sampled;
    let (mut at, mut logits) = (0, Vec::new());
    for end in cuts.iter().copied().chain([prompt]) {
        logits = model.forward(&tokens[at..end], at, &pool, &table).unwrap();
        at = end;
    }
    for at in prompt..tokens.len() {
        logits = model.decode(&tokens[at..=at], at, &pool, &table).unwrap();
    }
    let blocks = table.iter().map(|slot| {
        let mut bytes = vec![0; pool.layout().slot_bytes()];
        pool.read_slot(*slot, &mut bytes).unwrap();
        bytes
    });
    Outcome {
        logits,
        blocks: blocks.collect(),
    }
}

/// The largest difference, in terms of the largest logit.
fn difference(a: &[f32], b: &[f32]) -> f32 {
    let most = b.iter().fold(1e-9f32, |most, x| most.max(x.abs()));
    let off = a.iter().zip(b).map(|(a, b)| (a - b).abs() / most);
    off.fold(0.0, |most, x| {
        if x.is_nan() {
            f32::INFINITY
        } else {
            most.max(x)
        }
    })
}

pub fn write(model: &TinyModel) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tiny.gguf");
    // Keys are measured over no more than a context, and every instruction of that is interpreted.
    let model = TinyModel {
        context_length: 100,
        ..model.clone()
    };
    tiny::write(&path, &model).expect("a tiny model");
    (folder, path)
}

#[test]
fn the_device_passes_the_test_before_its_first_use() {
    self_test(&device(), &Team::new(2)).expect("it computes what the CPU computes");
}

/// How far the logits of the device are from the CPU's after a prompt and two sampled tokens.
fn off(architecture: Architecture, weights: GgmlDType, kv: &str) -> f32 {
    let (_folder, path) = write(&TinyModel::wide(architecture, 5, weights));
    let kv: KvFormat = kv.parse().unwrap();
    let (cpu, gpu) = (load_in(&path, Team::new(2), kv), on_device(&path, kv));
    assert_ne!(cpu.fingerprint(), gpu.fingerprint(), "law 5");
    // Instructions are interpreted, so that few tokens must do.
    let prompt = tokens(19, 300, 3);
    let [want, got] = [&cpu, &gpu].map(|model| run(model, &prompt, &[], 2));
    difference(&got.logits, &want.logits)
}

#[test]
fn logits_are_the_cpus_in_every_family_where_nothing_is_rounded_to_bytes() {
    for (architecture, weights) in [
        (Architecture::Llama, GgmlDType::F16),
        (Architecture::Llama, GgmlDType::BF16),
        (Architecture::Qwen2, GgmlDType::F16),
        (Architecture::Qwen3, GgmlDType::F16),
    ] {
        let off = off(architecture, weights, "f16");
        // Tensor cores multiply what attention weighs in 16 bits.
        assert!(off < 2e-3, "{architecture:?} {weights:?}: {off}");
    }
}

#[test]
fn logits_are_the_cpus_within_what_a_last_bit_does_to_bytes() {
    // A last bit more or less rounds an activation, a key or a value to the next byte.
    for (weights, kv) in [(GgmlDType::Q4K, "f16"), (GgmlDType::Q8_0, "q8")] {
        let off = off(Architecture::Llama, weights, kv);
        assert!(off < 4e-2, "{weights:?} {kv}: {off}");
    }
}

/// Runs a prompt of `num_tokens` whole and in chunks that end at `cuts`.
fn check_chunks(weights: GgmlDType, num_tokens: usize, cuts: &[&[usize]]) {
    let (_folder, path) = write(&TinyModel::wide(Architecture::Llama, 9, weights));
    let gpu = on_device(&path, KvFormat::Q8);
    let prompt = tokens(num_tokens, 300, 8);
    let whole = run(&gpu, &prompt, &[], 0);
    for cuts in cuts {
        assert!(run(&gpu, &prompt, cuts, 0) == whole, "{weights:?} {cuts:?}");
    }
}

#[test]
fn law_1_a_token_of_a_prompt_has_the_same_bits_in_any_chunk() {
    check_chunks(GgmlDType::Q4K, 100, &[&[64], &[1, 65, 99]]);
}

#[test]
fn law_1_a_token_has_the_same_bits_in_any_chunk_where_activations_are_not_rounded() {
    // Chunks that end within a tile of 16 tokens and behind one.
    for weights in [GgmlDType::F16, GgmlDType::BF16] {
        check_chunks(weights, 20, &[&[1, 17]]);
    }
}

#[test]
fn law_1_decoding_on_restored_blocks_gives_the_bits_of_decoding_on_resident_ones() {
    let model = TinyModel::wide(Architecture::Llama, 4, GgmlDType::Q4K);
    let (_folder, path) = write(&model);
    for device in in_both_orders() {
        let gpu = with_layers(&path, KvFormat::Q8, device, None);
        let all = tokens(75, 300, 2);
        let (prompt, last) = all.split_at(70);
        let (pool, table) = sequence(&gpu, all.len());
        gpu.forward(prompt, 0, &pool, &table).unwrap();
        let (other, _) = sequence(&gpu, all.len());
        let mut bytes = vec![0; pool.layout().slot_bytes()];
        for slot in &table {
            pool.read_slot(*slot, &mut bytes).unwrap();
            other.write_slot(*slot, &bytes).unwrap();
        }
        for (i, token) in last.iter().enumerate() {
            let [resident, restored] = [&pool, &other].map(|pool| {
                gpu.decode(&[*token], prompt.len() + i, pool, &table)
                    .unwrap()
            });
            // The second of them, and all later ones, run as they were recorded.
            assert!(resident == restored, "token {i}");
        }
    }
}

#[test]
fn what_a_model_holds_on_the_device_is_counted_and_given_back() {
    let model = TinyModel::wide(Architecture::Llama, 4, GgmlDType::Q4K);
    let (_folder, path) = write(&model);
    let gpu = on_device(&path, "q8".parse().unwrap());
    let decoder = gpu.device().expect("it is on the device");
    // All but the norms.
    let (weights, planned) = (
        decoder.weights_bytes() as u64,
        gpu.footprint().weights_bytes,
    );
    assert!(
        weights <= planned && weights * 100 >= planned * 98,
        "{weights} of {planned}"
    );
    let prompt = tokens(100, 300, 1);
    run(&gpu, &prompt, &[], 0);
    let planned = gpu.footprint().device_scratch_bytes(100, 1024) + gpu.footprint().rope_bytes(1);
    let measured = decoder.scratch_bytes() as u64;
    assert!(
        measured.abs_diff(planned) * 10 <= planned,
        "{measured} of {planned}"
    );
}

#[test]
fn a_prompt_is_computed_beside_its_blocks_coming_and_has_the_same_bits() {
    let (_folder, path) = write(&TinyModel::wide(Architecture::Llama, 6, GgmlDType::Q4K));
    for device in in_both_orders() {
        let gpu = with_layers(&path, KvFormat::Q8, device, None);
        let all = tokens(70, 300, 4);
        let (pool, table) = sequence(&gpu, all.len());
        gpu.forward(&all[..64], 0, &pool, &table).unwrap();
        let mut block = vec![0; pool.layout().slot_bytes()];
        pool.read_slot(table[0], &mut block).unwrap();
        let resident = gpu.forward(&all[64..], 64, &pool, &table).unwrap();

        let (other, table) = sequence(&gpu, all.len());
        for is_whole in [false, true] {
            let given = other.fill(&table[..1], 1, |parts| {
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        // When kernels wait for them already.
                        std::thread::sleep(Duration::from_millis(100));
                        let mut bytes = block.as_slice();
                        for (layer, mut part) in parts.into_iter().flatten().enumerate() {
                            let (of_part, rest) = bytes.split_at(part.as_mut().len());
                            part.as_mut().copy_from_slice(of_part);
                            bytes = rest;
                            // The last layer does not come.
                            if is_whole || layer == 0 {
                                part.ready();
                            }
                        }
                    });
                    assert!(gpu.decode(&all[64..65], 64, &other, &table).is_err());
                    gpu.forward(&all[64..], 64, &other, &table)
                })
            });
            match given.unwrap() {
                Ok(logits) => assert!(is_whole && logits == resident),
                Err(error) => assert!(!is_whole, "{error}"),
            }
        }
    }
}

#[test]
fn a_model_of_which_the_device_has_the_first_layers_computes_the_same() {
    let model = TinyModel {
        num_layers: 3,
        ..TinyModel::wide(Architecture::Llama, 7, GgmlDType::Q4K)
    };
    let (_folder, path) = write(&model);
    let prompt = tokens(68, 300, 3);
    let cpu = load_in(&path, Team::new(2), KvFormat::Q8);
    let both = with_layers(&path, KvFormat::Q8, device(), Some(1));
    let whole = run(&both, &prompt, &[], 1);
    assert!(run(&both, &prompt, &[1, 65], 1) == whole, "in any chunk");
    // Where the layers are in two places, nobody waits for slots.
    let (pool, table) = sequence(&both, prompt.len());
    let meanwhile = |_: Vec<Vec<Part>>| both.forward(&prompt[64..], 64, &pool, &table).is_err();
    assert!(pool.fill(&table[..1], 1, meanwhile).unwrap());
    let off = difference(&whole.logits, &run(&cpu, &prompt, &[], 1).logits);
    assert!(off < 4e-2, "{off}");
    let all = on_device(&path, KvFormat::Q8);
    let names = [&cpu, &both, &all].map(Model::fingerprint);
    assert!(names[0] != names[1] && names[1] != names[2], "law 5");
}
