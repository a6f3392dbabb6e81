//! The llama architecture in candle's tensor operations, all in f32: what quantized products and f16 keys and values are
//! measured against. A whole window in one pass, without a cache.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use candle_core::quantized::gguf_file::Content;
use candle_core::{DType, Device, Result, Tensor};
use candle_nn::ops::{rms_norm, silu, softmax_last_dim};
use candle_nn::rotary_emb::rope_i;
use models::{Architecture, ModelConfig, RopeScaling};

pub struct FloatPath {
    config: ModelConfig,
    /// As in the file, dequantized.
    weights: HashMap<String, Tensor>,
}

impl FloatPath {
    pub fn open(path: &Path, config: &ModelConfig) -> FloatPath {
        assert_eq!(config.architecture, Architecture::Llama);
        assert_eq!(config.rope_scaling, RopeScaling::None);
        let mut file = File::open(path).unwrap();
        let content = Content::read(&mut file).unwrap();
        let mut weight = |name: &String| {
            let tensor = content.tensor(&mut file, name, &Device::Cpu).unwrap();
            tensor.dequantize(&Device::Cpu).unwrap()
        };
        FloatPath {
            config: config.clone(),
            weights: content
                .tensor_infos
                .keys()
                .map(|name| (name.clone(), weight(name)))
                .collect(),
        }
    }

    /// What the head makes logits of: `[n, hidden_size]`.
    pub fn hidden(&self, tokens: &[u32]) -> Result<Tensor> {
        let tokens = Tensor::new(tokens, &Device::Cpu)?;
        let (cos, sin) = self.rotation(tokens.elem_count())?;
        let mut x = self.weights["token_embd.weight"].index_select(&tokens, 0)?;
        for layer in 0..self.config.num_layers {
            let name = |part: &str| format!("blk.{layer}.{part}");
            let normed = self.norm(&x, &name("attn_norm"))?;
            let q = self.heads(&normed, &name("attn_q"))?;
            let k = self.heads(&normed, &name("attn_k"))?;
            let v = self.heads(&normed, &name("attn_v"))?;
            let attended = self.attend(&rope_i(&q, &cos, &sin)?, &rope_i(&k, &cos, &sin)?, &v)?;
            x = (x + self.product(&attended, &name("attn_output"))?)?;
            let normed = self.norm(&x, &name("ffn_norm"))?;
            let gate = silu(&self.product(&normed, &name("ffn_gate"))?)?;
            let inner = (gate * self.product(&normed, &name("ffn_up"))?)?;
            x = (x + self.product(&inner, &name("ffn_down"))?)?;
        }
        self.norm(&x, "output_norm")
    }

    /// Logits of some rows of `hidden`: `[n, vocab_size]`.
    pub fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        let tied = !self.weights.contains_key("output.weight");
        let head = if tied { "token_embd" } else { "output" };
        self.product(hidden, head)
    }

    fn product(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        x.matmul(&self.weights[&format!("{name}.weight")].t()?)
    }

    fn norm(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        let weight = &self.weights[&format!("{name}.weight")];
        rms_norm(x, weight, self.config.norm_eps)
    }

    /// `[1, heads, n, head_dim]`
    fn heads(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        let x = self.product(x, name)?;
        let x = x.reshape((1, x.dim(0)?, (), self.config.head_dim))?;
        x.transpose(1, 2)?.contiguous()
    }

    /// Causal; query heads share key heads in groups. `[n, num_heads * head_dim]`
    fn attend(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        let (_, num_heads, n, head_dim) = q.dims4()?;
        let group = num_heads / self.config.num_kv_heads;
        let shared = |x: &Tensor| {
            let x = x.squeeze(0)?.unsqueeze(1)?; // [num_kv_heads, 1, n, head_dim]
            x.repeat((1, group, 1, 1))?
                .reshape((1, num_heads, n, head_dim))
        };
        let past: Vec<f32> = (0..n * n)
            .map(|i| {
                if i % n > i / n {
                    f32::NEG_INFINITY
                } else {
                    0.0
                }
            })
            .collect();
        let scores = (q.matmul(&shared(k)?.t()?)? / (head_dim as f64).sqrt())?;
        let scores = scores.broadcast_add(&Tensor::from_vec(past, (n, n), &Device::Cpu)?)?;
        let mixed = softmax_last_dim(&scores)?.matmul(&shared(v)?)?;
        mixed.transpose(1, 2)?.reshape((n, num_heads * head_dim))
    }

    /// Cosines and sines, `[n, head_dim / 2]`.
    fn rotation(&self, n: usize) -> Result<(Tensor, Tensor)> {
        let head_dim = self.config.head_dim;
        let base = f64::from(self.config.rope_base);
        let angles: Vec<f64> = (0..n * head_dim / 2)
            .map(|i| (i / (head_dim / 2), i % (head_dim / 2)))
            .map(|(position, pair)| {
                position as f64 / base.powf(2.0 * pair as f64 / head_dim as f64)
            })
            .collect();
        let angles = Tensor::from_vec(angles, (n, head_dim / 2), &Device::Cpu)?;
        let [cos, sin] = [angles.cos()?, angles.sin()?];
        Ok((cos.to_dtype(DType::F32)?, sin.to_dtype(DType::F32)?))
    }
}
