//! A loaded model.

use std::path::Path;
use std::sync::Arc;

use kernels::cuda::{self, Device};
use kernels::{BLOCK_TOKENS, KvFormat, KvLayout, KvPool, Phase, Team};

use crate::config::{DEFAULT_KV_FORMAT, ModelConfig};
use crate::decoder::{Decoder, OnDevice, Place};
use crate::digest::DigestCache;
use crate::error::{Error, Result};
use crate::fingerprint::{Fingerprint, Identity};
use crate::footprint::Footprint;
use crate::gguf::GgufFile;
use crate::key_balance;
use crate::model_info::{self, ModelInfo};
use crate::sampler::Sampler;
use crate::source::Source;
use crate::template::ChatTemplate;
use crate::tokenizer::Tokenizer;

/// A model ready to run. Immutable; keys and values live in the caller's pool.
pub struct Model {
    name: String,
    config: ModelConfig,
    tokenizer: Tokenizer,
    template: ChatTemplate,
    fingerprint: Fingerprint,
    info: ModelInfo,
    weights_bytes: u64,
    layout: KvLayout,
    kv_note: Option<String>,
    footprint: Footprint,
    source: Source,
    decoder: Decoder,
}

/// How a model is loaded.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Format of the keys and values.
    pub kv: KvFormat,
    /// Use `kv` even where it was measured to fail (see [`ModelConfig::kv_format`]); it must fit the heads all the same.
    pub is_forced: bool,
    /// Keep quantized weights as f32, so that products do not round activations: slow, large, and as exact as the weights
    /// are.
    pub float_weights: bool,
    /// The GPU that runs the model; without one, the team does.
    pub device: Option<Arc<Device>>,
    /// Layers that the GPU runs, from the first on, where it cannot have all; the team runs the others.
    pub device_layers: Option<usize>,
}

/// On the CPU, `q8`, not forced, weights as in the file.
impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            kv: DEFAULT_KV_FORMAT,
            is_forced: false,
            float_weights: false,
            device: None,
            device_layers: None,
        }
    }
}

impl Model {
    /// Opens a GGUF file to run on `threads` threads, with the default options. Whatever is wrong with it becomes an error
    /// that names the file.
    pub fn load(path: &Path, threads: usize, digests: &DigestCache) -> Result<Model> {
        Model::load_with(path, Team::new(threads), digests, LoadOptions::default())
    }

    /// As `load`, on a given team and with other options.
    pub fn load_with(
        path: &Path,
        team: Team,
        digests: &DigestCache,
        options: LoadOptions,
    ) -> Result<Model> {
        let file = GgufFile::open(path)?;
        let config = ModelConfig::read(&file)?;
        let tokenizer = Tokenizer::read(&file)?;
        if tokenizer.num_tokens() > config.vocab_size {
            let (tokens, rows) = (tokenizer.num_tokens(), config.vocab_size);
            return Err(file.broken(format!(
                "{tokens} tokens but only {rows} rows in the token embedding"
            )));
        }
        let (format, kv_note) = match options.is_forced {
            true => options.kv.fitting(config.head_dim),
            false => config.kv_format(options.kv),
        };
        let layout = config.kv_layout(format);
        let template = ChatTemplate::read(&file)?;
        let all = config.num_layers;
        let num_layers = options.device_layers.unwrap_or(all).clamp(1, all);
        let device = options
            .device
            .as_ref()
            .map(|device| OnDevice { device, num_layers });
        let source = Source::of(&file, digests)?;
        let decoder = Decoder::load(&file, &config, layout, team, options.float_weights, device)?;
        // Before any block is stored under that digest.
        source.check(&file)?;
        let identity = Identity {
            weights: source.digest,
            tokenizer: tokenizer.digest(),
            on_device: options
                .device
                .as_ref()
                .map(|device| crate::fingerprint::OnDevice {
                    compute_capability: device.compute_capability(),
                    num_layers,
                }),
        };
        let plain = Fingerprint::of(&config, &layout, &identity, None);
        let (decoder, balance) = match format.key.is_rotated() {
            true => {
                // Which weights, tokenizer and arithmetic: all that it depends on. Weights kept as f32 are others.
                let folder = digests.folder().filter(|_| !options.float_weights);
                let balance = key_balance::of(&decoder, &config, &tokenizer, folder, &plain.0)?;
                let numbers = balance.numbers();
                (decoder.balanced(balance)?, Some(numbers))
            }
            false => (decoder, None),
        };
        Ok(Model {
            name: model_info::name_of(path),
            fingerprint: Fingerprint::of(&config, &layout, &identity, balance.as_deref()),
            info: ModelInfo::new(&file, &config, &layout, &template),
            weights_bytes: weights_bytes(&file),
            footprint: Footprint::of(&file, &config),
            source,
            config,
            layout,
            kv_note,
            tokenizer,
            template,
            decoder,
        })
    }

    /// The file's name without folder and extension.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What its file says of itself.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// Whether the file at `path` holds the weights of this model.
    ///
    /// # Errors
    /// When it is not a usable model file.
    pub fn is_of(&self, path: &Path, digests: &DigestCache) -> Result<bool> {
        self.source.is_at(path, digests)
    }

    /// Its shape.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Its tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Its chat template.
    pub fn template(&self) -> &ChatTemplate {
        &self.template
    }

    /// What its blocks depend on.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Shape of a pool slot for this model.
    pub fn kv_layout(&self) -> KvLayout {
        self.layout
    }

    /// Why keys and values have another format than was asked for, if they have.
    pub fn kv_note(&self) -> Option<&str> {
        self.kv_note.as_deref()
    }

    /// Bytes of all weights in the file.
    pub fn weights_bytes(&self) -> u64 {
        self.weights_bytes
    }

    /// What its parts take in memory.
    pub fn footprint(&self) -> &Footprint {
        &self.footprint
    }

    /// Threads that run it.
    pub fn num_threads(&self) -> usize {
        self.decoder.num_threads()
    }

    /// The GPU that has its weights, if one has, and what they take there. Pools must be in its memory.
    pub fn device(&self) -> Option<&cuda::Decoder> {
        self.decoder.device()
    }

    /// Whether threads run a part of its layers beside a GPU.
    pub fn is_on_both(&self) -> bool {
        self.decoder.is_on_both()
    }

    /// A pool of `num_slots` slots where the model runs. It takes no memory yet.
    pub fn pool(&self, num_slots: usize) -> Result<KvPool> {
        self.decoder.pool(self.layout, num_slots)
    }

    /// A pool of slots of `kv_layout` in the machine's memory, for blocks of a pool as `pool` gives; where a device has that, it copies
    /// to and from here directly.
    ///
    /// # Errors
    /// When the layout cannot be, or so many slots cannot be addressed.
    pub fn host_pool(&self, num_slots: usize) -> Result<KvPool> {
        Ok(match self.device() {
            Some(decoder) => KvPool::beside(Arc::clone(decoder.device()), self.layout, num_slots)?,
            None => KvPool::new(self.layout, num_slots)?,
        })
    }

    /// Runs `tokens` (not empty), a prompt or a part of one, at position `offset` of the sequence whose slots are `table`; the
    /// keys and values before `offset` must be there. Writes those of all tokens; returns the logits of the last one
    /// [vocab_size]. The pool's format may be another than `kv_layout`'s, but its blocks are not those of this model's
    /// fingerprint then.
    pub fn forward(
        &self,
        tokens: &[u32],
        offset: usize,
        pool: &KvPool,
        table: &[u32],
    ) -> Result<Vec<f32>> {
        let place = self.place(tokens, offset, pool, table)?;
        self.decoder.forward(tokens, place, Phase::Prefill, true)
    }

    /// As `forward`, for tokens that were sampled: on a GPU with the kernels for one at a time.
    pub fn decode(
        &self,
        tokens: &[u32],
        offset: usize,
        pool: &KvPool,
        table: &[u32],
    ) -> Result<Vec<f32>> {
        let place = self.place(tokens, offset, pool, table)?;
        self.decoder.forward(tokens, place, Phase::Decode, true)
    }

    /// Runs the last token of a timeline, which was sampled, after those before it, and samples the next one: on a GPU there,
    /// where the sampler's settings allow it.
    pub fn next(
        &self,
        recent: &[u32],
        pool: &KvPool,
        table: &[u32],
        sampler: &mut Sampler,
    ) -> Result<u32> {
        let offset = recent.len().saturating_sub(1);
        let token = &recent[offset..];
        let place = self.place(token, offset, pool, table)?;
        self.decoder.next(token, place, sampler, recent)
    }

    /// As `forward`, but the logits of every token, [n] of [vocab_size].
    pub fn forward_all(
        &self,
        tokens: &[u32],
        offset: usize,
        pool: &KvPool,
        table: &[u32],
    ) -> Result<Vec<Vec<f32>>> {
        let place = self.place(tokens, offset, pool, table)?;
        let logits = self.decoder.forward(tokens, place, Phase::Prefill, false)?;
        let rows = logits.chunks_exact(self.config.vocab_size);
        Ok(rows.map(<[f32]>::to_vec).collect())
    }

    /// Where tokens stand; an error if they, the pool and the table do not fit the model and each other.
    fn place<'a>(
        &self,
        tokens: &[u32],
        offset: usize,
        pool: &'a KvPool,
        table: &'a [u32],
    ) -> Result<Place<'a>> {
        self.check(tokens, offset, pool, table)?;
        Ok(Place {
            offset,
            pool,
            table,
        })
    }

    fn check(&self, tokens: &[u32], offset: usize, pool: &KvPool, table: &[u32]) -> Result<()> {
        let wrong = |reason: String| Err(Error::Input(reason));
        let end = offset.saturating_add(tokens.len());
        if tokens.is_empty() {
            return wrong("no tokens".into());
        }
        if let Some(id) = tokens
            .iter()
            .find(|id| **id as usize >= self.config.vocab_size)
        {
            return wrong(format!(
                "token {id} is not among the model's {}",
                self.config.vocab_size
            ));
        }
        if end > self.config.context_length {
            return wrong(format!(
                "{end} tokens exceed the model's context of {}",
                self.config.context_length
            ));
        }
        let format = pool.layout().format;
        if *pool.layout() != self.config.kv_layout(format) {
            return wrong(format!(
                "the pool is laid out for {:?}, the model for {:?}",
                pool.layout(),
                self.kv_layout()
            ));
        }
        if table.len() < end.div_ceil(BLOCK_TOKENS) {
            return wrong(format!(
                "a table of {} blocks for {end} tokens",
                table.len()
            ));
        }
        if let Some(slot) = table
            .iter()
            .find(|slot| **slot as usize >= pool.num_slots())
        {
            return wrong(format!("slot {slot} of a pool of {}", pool.num_slots()));
        }
        Ok(())
    }
}

fn weights_bytes(file: &GgufFile) -> u64 {
    file.tensors()
        .map(|(_, dtype, elements)| (elements / dtype.block_size() * dtype.type_size()) as u64)
        .sum()
}
