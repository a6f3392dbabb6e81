//! The description of a model file, from its header alone.

use std::path::{Path, PathBuf};

use kernels::KvLayout;
use serde::{Deserialize, Serialize};

use crate::config::{DEFAULT_KV_FORMAT, ModelConfig};
use crate::error::Result;
use crate::gguf::GgufFile;
use crate::template::ChatTemplate;

/// The description of a model file, from its header.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelInfo {
    /// The file's name without folder and extension.
    pub name: String,
    /// The file.
    pub path: PathBuf,
    /// As named in the file.
    pub architecture: String,
    /// Decoder layers.
    pub num_layers: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Query heads per layer.
    pub num_heads: usize,
    /// Key/value heads per layer.
    pub num_kv_heads: usize,
    /// Elements per head.
    pub head_dim: usize,
    /// Rows of the token embedding.
    pub vocab_size: usize,
    /// Tokens the model was trained for.
    pub context_length: usize,
    /// The format that most weights have, e.g. "Q4_K".
    pub quantization: String,
    /// Weights, counted.
    pub num_parameters: u64,
    /// Size of the file.
    pub file_bytes: u64,
    /// Format of keys and values: one name, or `keys/values`.
    pub kv_format: String,
    /// Bytes of keys and values per token, in that format.
    pub kv_bytes_per_token: u64,
    /// Why the model is not used exactly as its file asks: a chat template that cannot be used.
    #[serde(default)]
    pub warning: Option<String>,
}

impl ModelInfo {
    pub(crate) fn new(
        file: &GgufFile,
        config: &ModelConfig,
        layout: &KvLayout,
        template: &ChatTemplate,
    ) -> ModelInfo {
        ModelInfo {
            name: name_of(file.path()),
            path: file.path().to_path_buf(),
            architecture: config.architecture.name().into(),
            num_layers: config.num_layers,
            hidden_size: config.hidden_size,
            num_heads: config.num_heads,
            num_kv_heads: config.num_kv_heads,
            head_dim: config.head_dim,
            vocab_size: config.vocab_size,
            context_length: config.context_length,
            quantization: quantization(file),
            num_parameters: file.tensors().map(|(_, _, elements)| elements as u64).sum(),
            file_bytes: file.file_bytes(),
            kv_format: layout.format.to_string(),
            kv_bytes_per_token: layout.bytes_per_token() as u64,
            warning: template.note().map(str::to_owned),
        }
    }
}

/// Reads a file's header and checks it as far as possible without reading weights. What `inspect` refuses, `load` refuses.
pub fn inspect(path: &Path) -> Result<ModelInfo> {
    let file = GgufFile::open(path)?;
    let config = ModelConfig::read(&file)?;
    let (format, _) = config.kv_format(DEFAULT_KV_FORMAT);
    let template = ChatTemplate::read(&file)?;
    Ok(ModelInfo::new(
        &file,
        &config,
        &config.kv_layout(format),
        &template,
    ))
}

/// The name of a model: its file's, without folder and extension.
pub(crate) fn name_of(path: &Path) -> String {
    path.file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// The format of most elements outside the token embedding.
fn quantization(file: &GgufFile) -> String {
    let mut elements = std::collections::BTreeMap::<String, usize>::new();
    for (_, dtype, count) in file
        .tensors()
        .filter(|(name, ..)| *name != "token_embd.weight")
    {
        *elements
            .entry(format_name(&format!("{dtype:?}")))
            .or_default() += count;
    }
    elements
        .into_iter()
        .max_by_key(|(_, count)| *count)
        .map_or_else(String::new, |(name, _)| name)
}

/// candle writes `Q4K` where everybody else writes `Q4_K`.
fn format_name(name: &str) -> String {
    match name.strip_suffix('K') {
        Some(start) => format!("{start}_K"),
        None => name.to_string(),
    }
}
