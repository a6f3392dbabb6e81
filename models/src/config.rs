//! The data by which architectures differ.

use kernels::{KvFormat, KvLayout, RopeKind};
use serde::Serialize;

use crate::error::{Error, Result};
use crate::gguf::GgufFile;

/// The KV format of a model unless another one is asked for.
pub(crate) const DEFAULT_KV_FORMAT: KvFormat = KvFormat::Q8;

/// The model families the decoder runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Architecture {
    /// Llama 2 and 3, SmolLM2, Mistral.
    Llama,
    /// Qwen 2 and 2.5: biases on the query, key and value projections.
    Qwen2,
    /// Qwen 3: a norm per query and key head, an explicit head size.
    Qwen3,
}

/// How rotary frequencies are stretched beyond the context the model was first trained on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum RopeScaling {
    /// As trained.
    None,
    /// Every frequency divided by one factor.
    Linear(f32),
    /// Every frequency divided by its own factor (`rope_freqs.weight`: Llama 3).
    PerFrequency(Vec<f32>),
}

/// Everything the decoder needs to know about a model beside its weights.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelConfig {
    /// The family.
    pub architecture: Architecture,
    /// Number of decoder layers.
    pub num_layers: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the feed-forward layer.
    pub intermediate_size: usize,
    /// Query heads per layer.
    pub num_heads: usize,
    /// Key/value heads per layer.
    pub num_kv_heads: usize,
    /// Elements per head.
    pub head_dim: usize,
    /// Rows of the token embedding.
    pub vocab_size: usize,
    /// Longest sequence the model was trained for, in tokens.
    pub context_length: usize,
    /// Epsilon of the RMS norms.
    pub norm_eps: f32,
    /// Base of the rotary frequencies.
    pub rope_base: f32,
    /// Their stretching.
    pub rope_scaling: RopeScaling,
}

/// Widths and counts beyond these are nonsense in a metadata field, not a model.
const MAX_WIDTH: u64 = 1 << 20;
const MAX_LAYERS: u64 = 1 << 12;
const MAX_CONTEXT: u64 = 1 << 24;

impl Architecture {
    /// The name used in the file and as the prefix of its metadata keys.
    pub fn name(self) -> &'static str {
        match self {
            Architecture::Llama => "llama",
            Architecture::Qwen2 => "qwen2",
            Architecture::Qwen3 => "qwen3",
        }
    }

    fn read(file: &GgufFile) -> Result<Architecture> {
        match file.text("general.architecture")? {
            None => Err(file.broken("it does not name its architecture (general.architecture)")),
            Some("llama") => Ok(Architecture::Llama),
            Some("qwen2") => Ok(Architecture::Qwen2),
            Some("qwen3") => Ok(Architecture::Qwen3),
            Some(other) => Err(Error::Architecture {
                path: file.path().to_path_buf(),
                name: other.into(),
            }),
        }
    }
}

impl ModelConfig {
    /// Which elements of a head rotate together: llama files store them as neighbours, the others as halves.
    pub fn rope_kind(&self) -> RopeKind {
        match self.architecture {
            Architecture::Llama => RopeKind::Interleaved,
            Architecture::Qwen2 | Architecture::Qwen3 => RopeKind::Halves,
        }
    }

    /// Whether every query and key head is normalised on its own.
    pub(crate) fn has_head_norms(&self) -> bool {
        self.architecture == Architecture::Qwen3
    }

    /// Shape of a pool slot for this model, with keys and values in `format`.
    pub fn kv_layout(&self, format: KvFormat) -> KvLayout {
        KvLayout {
            format,
            num_layers: self.num_layers,
            num_kv_heads: self.num_kv_heads,
            head_dim: self.head_dim,
        }
    }

    /// Reads and checks a file's metadata.
    pub(crate) fn read(file: &GgufFile) -> Result<ModelConfig> {
        let architecture = Architecture::read(file)?;
        let keys = Keys {
            file,
            prefix: architecture.name(),
        };
        let num_experts = file.number(&keys.key("expert_count"))?.unwrap_or(0);
        if num_experts > 0 {
            return Err(file.unsupported(format!(
                "it is a mixture of {num_experts} experts, which is not supported yet"
            )));
        }
        let hidden_size = keys.size("embedding_length", MAX_WIDTH)?;
        let num_heads = keys.size("attention.head_count", MAX_WIDTH)?;
        let num_kv_heads = match file.number(&keys.key("attention.head_count_kv"))? {
            None => num_heads,
            Some(_) => keys.size("attention.head_count_kv", MAX_WIDTH)?,
        };
        let head_dim = keys.head_dim(hidden_size, num_heads)?;
        if !num_heads.is_multiple_of(num_kv_heads) {
            return Err(file.broken(format!(
                "{num_heads} heads do not share {num_kv_heads} key/value heads evenly"
            )));
        }
        let vocab_size = file
            .tensor("token_embd.weight")?
            .shape
            .first()
            .copied()
            .unwrap_or(0);
        Ok(ModelConfig {
            architecture,
            num_layers: keys.size("block_count", MAX_LAYERS)?,
            hidden_size,
            intermediate_size: keys.size("feed_forward_length", 8 * MAX_WIDTH)?,
            num_heads,
            num_kv_heads,
            head_dim,
            vocab_size,
            context_length: keys.size("context_length", MAX_CONTEXT)?,
            norm_eps: keys.positive("attention.layer_norm_rms_epsilon", 1e-5)?,
            rope_base: keys.positive("rope.freq_base", 10_000.0)?,
            rope_scaling: keys.rope_scaling(head_dim)?,
        })
    }
}

/// The metadata under one architecture's prefix.
struct Keys<'a> {
    file: &'a GgufFile,
    prefix: &'static str,
}

impl Keys<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.prefix)
    }

    fn size(&self, name: &str, most: u64) -> Result<usize> {
        let key = self.key(name);
        match self.file.number(&key)? {
            None => Err(self.file.broken(format!("{key} is missing"))),
            Some(value) if value == 0 || value > most => {
                Err(self.file.broken(format!("{key} is {value}")))
            }
            Some(value) => Ok(value as usize),
        }
    }

    fn positive(&self, name: &str, default: f32) -> Result<f32> {
        let key = self.key(name);
        match self.file.float(&key)? {
            None => Ok(default),
            Some(value) if value > 0.0 => Ok(value),
            Some(value) => Err(self.file.broken(format!("{key} is {value}"))),
        }
    }

    fn head_dim(&self, hidden_size: usize, num_heads: usize) -> Result<usize> {
        let explicit = match self.file.number(&self.key("attention.key_length"))? {
            None => None,
            Some(_) => Some(self.size("attention.key_length", MAX_WIDTH)?),
        };
        let head_dim = explicit.unwrap_or(hidden_size / num_heads);
        if explicit.is_none() && head_dim * num_heads != hidden_size {
            return Err(self.file.broken(format!(
                "a width of {hidden_size} is not divided by {num_heads} heads"
            )));
        }
        for (name, what) in [
            ("attention.value_length", "values"),
            ("rope.dimension_count", "rotary positions"),
        ] {
            let length = self
                .file
                .number(&self.key(name))?
                .unwrap_or(head_dim as u64);
            if length != head_dim as u64 {
                return Err(self.file.unsupported(format!(
                    "its heads have {head_dim} elements but {what} over {length}, which is not supported"
                )));
            }
        }
        if head_dim % 2 != 0 || head_dim > 1024 {
            return Err(self.file.broken(format!("heads of {head_dim} elements")));
        }
        Ok(head_dim)
    }

    fn rope_scaling(&self, head_dim: usize) -> Result<RopeScaling> {
        const FACTORS: &str = "rope_freqs.weight";
        if self.file.has_tensor(FACTORS) {
            let factors = self.file.vector(FACTORS, head_dim / 2)?;
            if factors.iter().any(|f| !f.is_finite() || *f <= 0.0) {
                return Err(self
                    .file
                    .broken(format!("{FACTORS} holds a factor that is not positive")));
            }
            return Ok(RopeScaling::PerFrequency(factors));
        }
        match self.file.text(&self.key("rope.scaling.type"))? {
            None | Some("none") => Ok(RopeScaling::None),
            Some("linear") => Ok(RopeScaling::Linear(
                self.positive("rope.scaling.factor", 1.0)?,
            )),
            Some(other) => Err(self.file.unsupported(format!(
                "its rope scaling is {other:?}, which is not supported yet"
            ))),
        }
    }
}
