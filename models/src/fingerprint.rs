//! The name of everything that a cached block's bytes depend on, beside its tokens.

use kernels::{BLOCK_TOKENS, KvDtype, KvLayout, TILE_TOKENS};

use crate::config::{ModelConfig, RopeScaling};

/// A BLAKE3 digest; two models whose fingerprints differ never share a block. See `Fingerprint::of` for what is in it.
/// Not in it: context size in use, sampling, seed, threads, batch, paths, names, time, template text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub [u8; 32]);

/// Raised by hand when the decoder's own arithmetic changes (the kernels' part is in `kernels::numerics()`).
const DECODER_NUMERICS: u32 = 1;

/// Raised by hand when what a GPU computes changes.
const DEVICE_NUMERICS: u32 = 1;

/// Which weights and tokens, and who computes with them.
pub(crate) struct Identity {
    /// Digest of the weights.
    pub(crate) weights: [u8; 32],
    /// Digest of the tokenizer, which covers the BOS policy.
    pub(crate) tokenizer: [u8; 32],
    /// The GPU's part, if there is one: its last bits are others than the CPU's.
    pub(crate) on_device: Option<OnDevice>,
}

/// What a GPU computes.
pub(crate) struct OnDevice {
    /// Its compute capability, 80 for 8.0: another one may run other kernels, and its units that approximate round in their own way.
    pub(crate) compute_capability: u32,
    /// Layers, from the first on.
    pub(crate) num_layers: usize,
}

impl Fingerprint {
    /// `balance` are the numbers that keys are balanced with.
    pub(crate) fn of(
        config: &ModelConfig,
        layout: &KvLayout,
        identity: &Identity,
        balance: Option<&[f32]>,
    ) -> Fingerprint {
        let Identity {
            weights,
            tokenizer,
            on_device,
        } = identity;
        let mut text = String::from("reprise fingerprint 1\n");
        let mut line = |name: &str, value: String| {
            text.push_str(name);
            text.push('=');
            text.push_str(&value);
            text.push('\n');
        };
        line("block_tokens", BLOCK_TOKENS.to_string());
        line(
            "slot",
            format!("layer,k|v,tile of {TILE_TOKENS},kv_head; k by lanes, v by rows"),
        );
        line(
            "slabs",
            format!(
                "{}x{}+{}",
                layout.num_layers,
                layout.key_slab_bytes(),
                layout.value_slab_bytes()
            ),
        );
        let of = |dtype: KvDtype| match dtype.is_rotated() {
            true => format!("{} by 32, hadamard", dtype.name()),
            false => dtype.name().to_string(),
        };
        line("keys", of(layout.format.key));
        line("values", of(layout.format.value));
        let balance = balance.map(|numbers| {
            let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
            blake3::hash(&bytes).to_hex().to_string()
        });
        line("balance", balance.unwrap_or("none".into()));
        line(
            "endian",
            if cfg!(target_endian = "little") {
                "little"
            } else {
                "big"
            }
            .into(),
        );
        line("activations", "f32".into());
        line(
            "numerics",
            format!("{}/{DECODER_NUMERICS}", kernels::numerics()),
        );
        if let Some(OnDevice {
            compute_capability,
            num_layers,
        }) = on_device
        {
            line(
                "device",
                format!("gpu/{DEVICE_NUMERICS}, {compute_capability}, {num_layers} layers"),
            );
        }
        line("weights", blake3::Hash::from(*weights).to_hex().to_string());
        line("adapters", "none".into());
        line(
            "tokenizer",
            blake3::Hash::from(*tokenizer).to_hex().to_string(),
        );
        line("architecture", format!("{:?}", config.architecture));
        line("layers", config.num_layers.to_string());
        line(
            "width",
            format!("{}/{}", config.hidden_size, config.intermediate_size),
        );
        line(
            "heads",
            format!(
                "{}/{}/{}",
                config.num_heads, config.num_kv_heads, config.head_dim
            ),
        );
        line("eps", format!("{:08x}", config.norm_eps.to_bits()));
        line("rope_base", format!("{:08x}", config.rope_base.to_bits()));
        line("rope_kind", format!("{:?}", config.rope_kind()));
        let scaling = match &config.rope_scaling {
            RopeScaling::None => "none".to_string(),
            RopeScaling::Linear(factor) => format!("linear {:08x}", factor.to_bits()),
            RopeScaling::PerFrequency(factors) => {
                factors.iter().fold("per frequency".into(), |text, f| {
                    format!("{text} {:08x}", f.to_bits())
                })
            }
        };
        line("rope_scaling", scaling);
        Fingerprint(*blake3::hash(text.as_bytes()).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Architecture;
    use kernels::KvFormat;

    #[test]
    fn law_5_any_difference_that_changes_a_block_changes_the_fingerprint() {
        let base = ModelConfig {
            architecture: Architecture::Llama,
            num_layers: 2,
            hidden_size: 8,
            intermediate_size: 16,
            num_heads: 2,
            num_kv_heads: 1,
            head_dim: 32,
            vocab_size: 10,
            context_length: 128,
            norm_eps: 1e-5,
            rope_base: 1e4,
            rope_scaling: RopeScaling::None,
        };
        let identity = |weights: u8, tokenizer: u8| Identity {
            weights: [weights; 32],
            tokenizer: [tokenizer; 32],
            on_device: None,
        };
        let of = |config: &ModelConfig, weights: u8, tokenizer: u8| {
            let layout = config.kv_layout(KvFormat::F16);
            Fingerprint::of(config, &layout, &identity(weights, tokenizer), None)
        };
        let mut all = vec![of(&base, 0, 0), of(&base, 1, 0), of(&base, 0, 1)];
        for (compute_capability, num_layers) in [(75, 1), (75, 2), (80, 2), (86, 2)] {
            let identity = Identity {
                on_device: Some(OnDevice {
                    compute_capability,
                    num_layers,
                }),
                ..identity(0, 0)
            };
            let layout = base.kv_layout(KvFormat::F16);
            all.push(Fingerprint::of(&base, &layout, &identity, None));
        }
        let variants: [fn(&mut ModelConfig); 9] = [
            |c| c.architecture = Architecture::Qwen3,
            |c| c.num_layers = 3,
            |c| c.hidden_size = 12,
            |c| c.num_heads = 4,
            |c| c.head_dim = 64,
            |c| c.norm_eps = 1e-6,
            |c| c.rope_base = 1e5,
            |c| c.rope_scaling = RopeScaling::Linear(2.0),
            |c| c.rope_scaling = RopeScaling::PerFrequency(vec![1.0, 2.0]),
        ];
        for change in variants {
            let mut config = base.clone();
            change(&mut config);
            all.push(of(&config, 0, 0));
        }
        for key in KvDtype::ALL {
            for value in KvDtype::ALL
                .into_iter()
                .filter(|value| (key, *value) != (KvDtype::F16, KvDtype::F16))
            {
                let layout = base.kv_layout(KvFormat { key, value });
                all.push(Fingerprint::of(&base, &layout, &identity(0, 0), None));
            }
        }
        for balance in [[1.0, 2.0], [1.0, 2.5]] {
            let layout = base.kv_layout(KvFormat::F16);
            let balance = Some(&balance[..]);
            all.push(Fingerprint::of(&base, &layout, &identity(0, 0), balance));
        }
        let distinct: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
        let mut same = base.clone();
        same.context_length = 4096;
        assert_eq!(of(&same, 0, 0), all[0]);
    }
}
