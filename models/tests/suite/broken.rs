//! Broken and truncated files: an error that names the file, never a panic.

use std::path::{Path, PathBuf};

use candle_core::quantized::gguf_file::{self, Content, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};
use models::tiny::{self, TinyModel};
use models::{Architecture, DigestCache, Model, inspect};
use rand::{Rng, SeedableRng};

use crate::support::default_model_path;

pub(crate) struct Bench {
    pub(crate) dir: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("broken-model.gguf")
    }

    pub(crate) fn tiny(&self, model: &TinyModel) -> Vec<u8> {
        tiny::write(&self.path(), model).unwrap();
        std::fs::read(self.path()).unwrap()
    }

    /// What loading these bytes says; checks that `inspect` agrees as far as it looks and that the file is named.
    pub(crate) fn load(&self, bytes: &[u8]) -> Result<Model, String> {
        std::fs::write(self.path(), bytes).unwrap();
        load(&self.path())
    }

    /// The tiny model with its metadata and tensors changed.
    pub(crate) fn changed(
        &self,
        change: impl Fn(&mut Vec<(String, Value)>, &mut Vec<(String, QTensor)>),
    ) -> Result<Model, String> {
        self.tiny(&TinyModel::new(Architecture::Llama, 1));
        let mut file = std::fs::File::open(self.path()).unwrap();
        let content = Content::read(&mut file).unwrap();
        let names: Vec<&String> = content.tensor_infos.keys().collect();
        let read = |name: &String, file: &mut std::fs::File| {
            content.tensor(file, name, &Device::Cpu).unwrap()
        };
        let mut tensors: Vec<(String, QTensor)> = names
            .into_iter()
            .map(|name| (name.clone(), read(name, &mut file)))
            .collect();
        let mut metadata: Vec<(String, Value)> = content.metadata.clone().into_iter().collect();
        change(&mut metadata, &mut tensors);
        let metadata: Vec<(&str, &Value)> = metadata.iter().map(|(k, v)| (k.as_str(), v)).collect();
        let tensors: Vec<(&str, &QTensor)> = tensors.iter().map(|(k, v)| (k.as_str(), v)).collect();
        let mut file = std::fs::File::create(self.path()).unwrap();
        gguf_file::write(&mut file, &metadata, &tensors).unwrap();
        load(&self.path())
    }

    pub(crate) fn with(&self, key: &str, value: Option<Value>) -> Result<Model, String> {
        self.changed(|metadata, _| {
            metadata.retain(|(k, _)| k != key);
            metadata.extend(value.clone().map(|v| (key.to_string(), v)));
        })
    }
}

pub(crate) fn load(path: &Path) -> Result<Model, String> {
    let loaded = Model::load(path, 1, &DigestCache::new(None));
    if inspect(path).is_err() {
        assert!(loaded.is_err(), "inspect refuses what load takes");
    }
    loaded.map_err(|error| {
        let text = error.to_string();
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(text.contains(name), "{text:?} does not name the file");
        assert!(!text.contains('\n'), "{text:?} is more than one line");
        assert!(
            error.code().starts_with("model_") && !error.label().is_empty(),
            "{text}"
        );
        text
    })
}

pub(crate) fn refused(result: Result<Model, String>, why: &str) {
    match result {
        Ok(_) => panic!("loaded, though {why:?} was expected"),
        Err(text) => assert!(text.contains(why), "{text:?} does not say {why:?}"),
    }
}

#[test]
fn a_truncated_file_is_refused_wherever_it_ends() {
    let bench = Bench::new();
    let whole = bench.tiny(&TinyModel::new(Architecture::Qwen2, 1));
    let ends = (0..2000)
        .step_by(7)
        .chain((2000..whole.len()).step_by(whole.len() / 150))
        .chain([whole.len() - 64]);
    for end in ends {
        assert!(
            bench.load(&whole[..end]).is_err(),
            "loaded with {end} of {} bytes",
            whole.len()
        );
    }
    assert!(bench.load(&whole).is_ok());
}

#[test]
fn flipped_header_bytes_never_panic() {
    let bench = Bench::new();
    let whole = bench.tiny(&TinyModel::new(Architecture::Qwen3, 1));
    let weights = whole.windows(10).rposition(|w| w == b"output.wei").unwrap() + 4000;
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
    for round in 0..700 {
        let mut bytes = whole.clone();
        // The counts and the tensor table are small, so aim at the beginning and the end of the header too.
        let at = match round % 3 {
            0 => rng.random_range(0..64),
            1 => rng.random_range(0..weights),
            _ => rng.random_range(weights - 6000..weights),
        };
        bytes[at] = if round % 2 == 0 {
            bytes[at] ^ (1 << rng.random_range(0..8))
        } else {
            rng.random()
        };
        let _ = bench.load(&bytes);
    }
}

#[test]
fn nonsense_metadata_is_named() {
    let bench = Bench::new();
    let u32 = |n: u32| Some(Value::U32(n));
    let text = |s: &str| Some(Value::String(s.into()));
    for (key, value, why) in [
        ("general.architecture", None, "general.architecture"),
        (
            "general.architecture",
            text("mamba"),
            "\"mamba\"; supported are llama, qwen2 and qwen3",
        ),
        ("general.architecture", u32(3), "not text"),
        ("general.alignment", u32(0), "general.alignment is 0"),
        (
            "general.alignment",
            Some(Value::U64(32)),
            "general.alignment",
        ),
        ("llama.block_count", u32(0), "llama.block_count is 0"),
        (
            "llama.block_count",
            u32(u32::MAX),
            "llama.block_count is 4294967295",
        ),
        ("llama.block_count", u32(3), "blk.2."),
        ("llama.block_count", None, "llama.block_count is missing"),
        ("llama.attention.head_count", u32(0), "head_count is 0"),
        ("llama.attention.head_count", u32(7), "do not share"),
        (
            "llama.attention.head_count_kv",
            u32(0),
            "head_count_kv is 0",
        ),
        (
            "llama.attention.head_count_kv",
            Some(Value::I32(-1)),
            "not a whole number",
        ),
        ("llama.attention.key_length", u32(0), "key_length is 0"),
        ("llama.attention.key_length", u32(32), "is not supported"),
        ("llama.attention.value_length", u32(8), "is not supported"),
        ("llama.embedding_length", u32(128), "shape"),
        (
            "llama.embedding_length",
            u32(u32::MAX),
            "embedding_length is",
        ),
        ("llama.feed_forward_length", u32(64), "shape"),
        ("llama.context_length", u32(0), "context_length is 0"),
        (
            "llama.context_length",
            Some(Value::U64(u64::MAX)),
            "context_length is",
        ),
        (
            "llama.rope.freq_base",
            Some(Value::F32(f32::NAN)),
            "not a finite number",
        ),
        (
            "llama.rope.freq_base",
            Some(Value::F32(0.0)),
            "freq_base is 0",
        ),
        ("llama.rope.scaling.type", text("yarn"), "\"yarn\""),
        (
            "llama.attention.layer_norm_rms_epsilon",
            Some(Value::F32(-1.0)),
            "epsilon is -1",
        ),
        ("llama.expert_count", u32(8), "mixture of 8 experts"),
        ("tokenizer.ggml.model", text("llama"), "SentencePiece"),
        ("tokenizer.ggml.model", text("bert"), "\"bert\""),
        ("tokenizer.ggml.model", None, "no tokenizer"),
        ("tokenizer.ggml.pre", text("tekken"), "\"tekken\""),
        (
            "tokenizer.ggml.tokens",
            Some(Value::Array(vec![])),
            "tokens is missing",
        ),
        (
            "tokenizer.ggml.tokens",
            Some(Value::Array(vec![Value::String("a".into())])),
            "beyond the 1 tokens",
        ),
        ("tokenizer.ggml.tokens", u32(1), "not a list of texts"),
        ("tokenizer.ggml.merges", None, "merges is missing"),
        (
            "tokenizer.ggml.merges",
            Some(Value::Array(vec![Value::String("ab".into())])),
            "not two tokens",
        ),
        (
            "tokenizer.ggml.token_type",
            Some(Value::Array(vec![Value::I32(-1)])),
            "not a list of whole numbers",
        ),
        ("tokenizer.ggml.eos_token_id", u32(1 << 30), "eos_token_id"),
    ] {
        refused(bench.with(key, value), why);
    }
}

fn zeros(shape: &[usize]) -> QTensor {
    let zeros = Tensor::zeros(shape, DType::F32, &Device::Cpu).unwrap();
    QTensor::quantize(&zeros, GgmlDType::F32).unwrap()
}

#[test]
fn missing_and_misshapen_tensors_are_named() {
    let bench = Bench::new();
    for name in [
        "token_embd.weight",
        "output_norm.weight",
        "blk.1.ffn_down.weight",
        "blk.0.attn_norm.weight",
    ] {
        refused(
            bench.changed(|_, tensors| tensors.retain(|(n, _)| n != name)),
            name,
        );
        let small = || zeros(&[32, 32]);
        let reshape = |_: &mut Vec<_>, tensors: &mut Vec<(String, QTensor)>| {
            tensors
                .iter_mut()
                .filter(|(n, _)| n == name)
                .for_each(|(_, tensor)| *tensor = small());
        };
        assert!(bench.changed(reshape).is_err(), "{name}");
    }
    refused(
        bench.changed(|_, tensors| {
            let factors = zeros(&[8]);
            tensors.push(("rope_freqs.weight".into(), factors));
        }),
        "not positive",
    );
}

#[test]
fn a_sound_file_is_described_without_its_weights() {
    let info = inspect(&default_model_path()).unwrap();
    assert_eq!(
        (info.architecture.as_str(), info.quantization.as_str()),
        ("llama", "Q4_1")
    );
    assert_eq!(
        (info.num_layers, info.hidden_size, info.vocab_size),
        (30, 576, 49_152)
    );
    assert_eq!(
        (info.num_heads, info.num_kv_heads, info.head_dim),
        (9, 3, 64)
    );
    assert_eq!(
        (
            info.context_length,
            info.kv_bytes_per_token,
            info.file_bytes
        ),
        (8192, 12_240, 98_362_432)
    );
    assert!(
        (134_000_000..136_000_000).contains(&info.num_parameters),
        "{}",
        info.num_parameters
    );
    assert_eq!(info.name, "SmolLM2-135M-Instruct.Q4_1");
}
