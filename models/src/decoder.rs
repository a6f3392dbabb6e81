//! The one decoder: embedding, layers, norm, head. Architectures differ by data.

use std::cell::RefCell;
use std::sync::Arc;

use candle_core::quantized::GgmlDType;
use kernels::cuda::{self, Choice, Device, Next};
use kernels::{
    Arena, AttentionParams, BLOCK_TOKENS, KeyBalance, KvLayout, KvPool, Layer, LayerParams, Layers,
    Phase, Projection, QuantizedMatrix, Team, rms_norm,
};

use crate::config::{Architecture, ModelConfig};
use crate::error::{Error, Result};
use crate::gguf::GgufFile;
use crate::rope_table::{RopeTable, Rows};
use crate::sampler::Sampler;

/// The weights and what it takes to run them.
pub(crate) struct Decoder {
    weights: Weights,
    rope: RopeTable,
    num_threads: usize,
}

/// Weights, where they are.
enum Weights {
    Host(Box<OnHost>),
    Device(Box<cuda::Decoder>),
    Both(Box<OnBoth>),
}

/// The first layers on a device, and the head; the other layers in memory.
struct OnBoth {
    first: cuda::Decoder,
    /// Layers of it.
    num_first: usize,
    num_kv_heads: usize,
    rest: Layers,
    team: Team,
}

/// A device, and how many layers it is to have: the first ones.
pub(crate) struct OnDevice<'a> {
    pub(crate) device: &'a Arc<Device>,
    pub(crate) num_layers: usize,
}

/// Weights in memory, and the threads that run them.
struct OnHost {
    /// [vocab_size, hidden_size]
    embedding: QuantizedMatrix,
    /// [vocab_size, hidden_size]; `None` where it is the embedding.
    head: Option<QuantizedMatrix>,
    layers: Layers,
    /// [hidden_size]
    norm: Vec<f32>,
    norm_eps: f32,
    team: Team,
}

/// Where the tokens of a call stand: their first position and the slots of their sequence.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) offset: usize,
    pub(crate) pool: &'a KvPool,
    pub(crate) table: &'a [u32],
}

impl<'a> Place<'a> {
    fn with(self, rows: &'a Rows) -> kernels::Place<'a> {
        kernels::Place {
            offset: self.offset,
            pool: self.pool,
            table: self.table,
            cos: &rows.cos,
            sin: &rows.sin,
        }
    }
}

impl Decoder {
    /// Repacks the weights with the team that will run them, or copies them to a device that will.
    pub(crate) fn load(
        file: &GgufFile,
        config: &ModelConfig,
        layout: KvLayout,
        team: Team,
        float_weights: bool,
        device: Option<OnDevice<'_>>,
    ) -> Result<Decoder> {
        let load = Load {
            file,
            config,
            team: &team,
            float_weights,
            arena: RefCell::default(),
        };
        let num_threads = team.threads();
        let weights = match device {
            Some(on) if on.num_layers >= config.num_layers => {
                Weights::Device(Box::new(load.onto(on.device, layout)?))
            }
            Some(on) => {
                let of = |num_layers| KvLayout {
                    num_layers,
                    ..layout
                };
                let first = load.onto(on.device, of(on.num_layers))?;
                let rest = on.num_layers..config.num_layers;
                let (params, of_rest) = (params(config), of(rest.len()));
                let rest = rest.map(|index| load.layer(index));
                Weights::Both(Box::new(OnBoth {
                    first,
                    num_first: on.num_layers,
                    num_kv_heads: layout.num_kv_heads,
                    rest: Layers::new(rest.collect::<Result<_>>()?, params, of_rest)?,
                    team,
                }))
            }
            None => {
                let layers = (0..config.num_layers).map(|index| load.layer(index));
                let (layers, params) = (layers.collect::<Result<_>>()?, params(config));
                Weights::Host(Box::new(OnHost {
                    embedding: load.embedding()?,
                    head: load.head()?,
                    layers: Layers::new(layers, params, layout)?,
                    norm: load.norm()?,
                    norm_eps: config.norm_eps,
                    team,
                }))
            }
        };
        Ok(Decoder {
            weights,
            rope: RopeTable::new(config),
            num_threads,
        })
    }

    pub(crate) fn num_threads(&self) -> usize {
        self.num_threads
    }

    /// The device that has the weights, or the first of them, if one has.
    pub(crate) fn device(&self) -> Option<&cuda::Decoder> {
        match &self.weights {
            Weights::Host(_) => None,
            Weights::Device(decoder) => Some(decoder),
            Weights::Both(both) => Some(&both.first),
        }
    }

    /// Layers that threads compute beside a device.
    pub(crate) fn is_on_both(&self) -> bool {
        matches!(self.weights, Weights::Both(_))
    }

    /// A pool where the layers are.
    pub(crate) fn pool(&self, layout: KvLayout, num_slots: usize) -> Result<KvPool> {
        let on = |decoder: &cuda::Decoder, num_layers| {
            KvPool::on(Arc::clone(decoder.device()), num_layers, layout, num_slots)
        };
        Ok(match &self.weights {
            Weights::Host(_) => KvPool::new(layout, num_slots)?,
            Weights::Device(decoder) => on(decoder, layout.num_layers)?,
            Weights::Both(both) => on(&both.first, both.num_first)?,
        })
    }

    /// Writes keys and values of `tokens`; logits of all of them [n, vocab_size], or of the last one only [vocab_size].
    pub(crate) fn forward(
        &self,
        tokens: &[u32],
        place: Place<'_>,
        phase: Phase,
        last_only: bool,
    ) -> Result<Vec<f32>> {
        let rows = self.rope_rows(tokens, place);
        let at = place.with(&rows);
        match &self.weights {
            Weights::Host(host) => host.forward(tokens, at, last_only),
            Weights::Device(decoder) => Ok(decoder.forward(tokens, at, phase, last_only)?),
            Weights::Both(both) => both.forward(tokens, at, phase, last_only),
        }
    }

    /// Runs `tokens`, which were sampled, and samples the next one; `recent` are the tokens before it.
    pub(crate) fn next(
        &self,
        tokens: &[u32],
        place: Place<'_>,
        sampler: &mut Sampler,
        recent: &[u32],
    ) -> Result<u32> {
        if let Weights::Device(decoder) = &self.weights
            && let Some(choice) = sampler.choice()
        {
            let rows = self.rope_rows(tokens, place);
            return Ok(match decoder.next(tokens, place.with(&rows), choice)? {
                Next::Token(id) => id,
                Next::Undecided(logits) => match choice {
                    Choice::Greedy => sampler.choose(&logits, recent, 0.0),
                    Choice::Random { random, .. } => sampler.choose(&logits, recent, random),
                },
            });
        }
        let logits = self.forward(tokens, place, Phase::Decode, true)?;
        Ok(sampler.sample(&logits, recent))
    }

    /// What balances keys, measured over `tokens`.
    pub(crate) fn measure_keys(&self, tokens: &[u32], place: Place<'_>) -> Result<KeyBalance> {
        let rows = self.rope_rows(tokens, place);
        let at = place.with(&rows);
        match &self.weights {
            Weights::Host(host) => {
                let mut x = host.embedded(tokens)?;
                Ok(host.layers.measure(&host.team, &mut x, at)?)
            }
            Weights::Device(decoder) => Ok(decoder.measure(tokens, at)?.0),
            Weights::Both(both) => {
                let (balance, mut x) = both.first.measure(tokens, at)?;
                let rest = both.rest.measure(&both.team, &mut x, of_rest(at)?)?;
                Ok(balance.joined(rest))
            }
        }
    }

    /// The decoder with its keys balanced.
    pub(crate) fn balanced(self, balance: KeyBalance) -> Result<Decoder> {
        let weights = match self.weights {
            Weights::Host(host) => Weights::Host(Box::new(OnHost {
                layers: host.layers.balanced(balance)?,
                ..*host
            })),
            Weights::Device(decoder) => Weights::Device(Box::new(decoder.balanced(&balance)?)),
            Weights::Both(both) => {
                let (first, rest) = balance.split(both.num_first, both.num_kv_heads);
                Weights::Both(Box::new(OnBoth {
                    first: both.first.balanced(&first)?,
                    rest: both.rest.balanced(rest)?,
                    ..*both
                }))
            }
        };
        Ok(Decoder { weights, ..self })
    }

    /// Angles as far as the block of the last token.
    fn rope_rows(&self, tokens: &[u32], place: Place<'_>) -> Arc<Rows> {
        let end = place.offset + tokens.len();
        self.rope.rows(end.next_multiple_of(BLOCK_TOKENS))
    }
}

impl OnBoth {
    fn forward(
        &self,
        tokens: &[u32],
        at: kernels::Place,
        phase: Phase,
        last_only: bool,
    ) -> Result<Vec<f32>> {
        let mut x = self.first.begin(tokens, at, phase)?;
        self.rest
            .forward(&self.team, &mut x, of_rest(at)?, last_only)?;
        let width = x.len() / tokens.len();
        let x = match last_only {
            true => &x[x.len() - width..],
            false => &x[..],
        };
        Ok(self.first.finish(x, at, phase)?)
    }
}

/// Where the keys and values of the layers are that a device has not.
fn of_rest(at: kernels::Place<'_>) -> Result<kernels::Place<'_>> {
    let pool = at
        .pool
        .rest()
        .ok_or_else(|| Error::Input("the pool is not where the layers are".into()))?;
    Ok(kernels::Place { pool, ..at })
}

impl OnHost {
    fn forward(&self, tokens: &[u32], at: kernels::Place, last_only: bool) -> Result<Vec<f32>> {
        let mut x = self.embedded(tokens)?;
        self.layers.forward(&self.team, &mut x, at, last_only)?;
        let x = match last_only {
            true => &mut x[(tokens.len() - 1) * self.norm.len()..],
            false => &mut x[..],
        };
        rms_norm(self.team.path(), x, &self.norm, self.norm_eps);
        let head = self.head.as_ref().unwrap_or(&self.embedding);
        Ok(head.forward(x, &self.team)?)
    }

    /// [n, hidden_size]
    fn embedded(&self, tokens: &[u32]) -> Result<Vec<f32>> {
        let mut x = Vec::new();
        self.embedding.embedding(tokens, &mut x)?;
        Ok(x)
    }
}

/// What all layers have in common besides their shapes.
pub(crate) fn params(config: &ModelConfig) -> LayerParams {
    LayerParams {
        num_heads: config.num_heads,
        norm_eps: config.norm_eps,
        rope_kind: config.rope_kind(),
        attention: AttentionParams {
            scale: 1.0 / (config.head_dim as f32).sqrt(),
            window: None,
            softcap: None,
        },
    }
}

/// Whether a projection has a bias. Qwen 2 must have biases; the others may.
pub(crate) fn has_bias(file: &GgufFile, config: &ModelConfig, projection: &str) -> bool {
    config.architecture == Architecture::Qwen2 || file.has_tensor(&format!("{projection}.bias"))
}

/// What loading takes.
struct Load<'a> {
    file: &'a GgufFile,
    config: &'a ModelConfig,
    team: &'a Team,
    float_weights: bool,
    arena: RefCell<Arena>,
}

impl Load<'_> {
    /// Packs matrix after matrix and copies each to the device, so that memory holds one layer at a time.
    fn onto(&self, device: &Arc<Device>, layout: KvLayout) -> Result<cuda::Decoder> {
        let (embedding, head) = (self.embedding()?, self.head()?);
        let (norm, params) = (self.norm()?, params(self.config));
        let device = Arc::clone(device);
        let mut decoder =
            cuda::Decoder::new(device, &embedding, head.as_ref(), &norm, params, layout)?;
        drop((embedding, head));
        for index in 0..layout.num_layers {
            self.arena.take();
            decoder.push(&self.layer(index)?)?;
        }
        Ok(decoder)
    }

    fn embedding(&self) -> Result<QuantizedMatrix> {
        let (vocab, hidden) = (self.config.vocab_size, self.config.hidden_size);
        self.matrix("token_embd.weight", vocab, hidden)
    }

    /// `None` where it is the embedding.
    fn head(&self) -> Result<Option<QuantizedMatrix>> {
        const NAME: &str = "output.weight";
        let (vocab, hidden) = (self.config.vocab_size, self.config.hidden_size);
        let has_one = self.file.has_tensor(NAME);
        has_one
            .then(|| self.matrix(NAME, vocab, hidden))
            .transpose()
    }

    fn norm(&self) -> Result<Vec<f32>> {
        self.file
            .vector("output_norm.weight", self.config.hidden_size)
    }

    fn layer(&self, index: usize) -> Result<Layer> {
        let (file, config) = (self.file, self.config);
        let name = |part: &str| format!("blk.{index}.{part}");
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let (q, kv) = (
            config.num_heads * config.head_dim,
            config.num_kv_heads * config.head_dim,
        );
        let head_norms = match config.has_head_norms() {
            true => Some((
                file.vector(&name("attn_q_norm.weight"), config.head_dim)?,
                file.vector(&name("attn_k_norm.weight"), config.head_dim)?,
            )),
            false => None,
        };
        Ok(Layer {
            attention_norm: file.vector(&name("attn_norm.weight"), hidden)?,
            query: self.projection(&name("attn_q"), q)?,
            key: self.projection(&name("attn_k"), kv)?,
            value: self.projection(&name("attn_v"), kv)?,
            output: self.matrix(&name("attn_output.weight"), hidden, q)?,
            head_norms,
            feed_forward_norm: file.vector(&name("ffn_norm.weight"), hidden)?,
            gate: self.matrix(&name("ffn_gate.weight"), inner, hidden)?,
            up: self.matrix(&name("ffn_up.weight"), inner, hidden)?,
            down: self.matrix(&name("ffn_down.weight"), hidden, inner)?,
        })
    }

    fn projection(&self, name: &str, rows: usize) -> Result<Projection> {
        Ok(Projection {
            weight: self.matrix(&format!("{name}.weight"), rows, self.config.hidden_size)?,
            bias: match has_bias(self.file, self.config, name) {
                true => Some(self.file.vector(&format!("{name}.bias"), rows)?),
                false => None,
            },
        })
    }

    fn matrix(&self, name: &str, rows: usize, columns: usize) -> Result<QuantizedMatrix> {
        let tensor = self.file.tensor_of(name, &[rows, columns])?;
        let arena = &mut self.arena.borrow_mut();
        let matrix =
            QuantizedMatrix::new(tensor.dtype, rows, columns, tensor.bytes, self.team, arena)?;
        self.file.forget(&tensor);
        match self.float_weights {
            true => self.as_floats(&matrix, arena),
            false => Ok(matrix),
        }
    }

    /// The same weights in f32.
    fn as_floats(&self, matrix: &QuantizedMatrix, arena: &mut Arena) -> Result<QuantizedMatrix> {
        let (rows, columns) = (matrix.rows(), matrix.cols());
        let mut floats = Vec::new();
        let ids: Vec<u32> = (0..rows as u32).collect();
        matrix.embedding(&ids, &mut floats)?;
        let bytes: Vec<u8> = floats.iter().flat_map(|x| x.to_le_bytes()).collect();
        let dtype = GgmlDType::F32;
        Ok(QuantizedMatrix::new(
            dtype, rows, columns, &bytes, self.team, arena,
        )?)
    }
}
