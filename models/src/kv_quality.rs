//! Which KV formats a model can have: what fits its heads, and what was measured to keep its words.

use kernels::{KvDtype, KvFormat};

use crate::config::{Architecture, ModelConfig};

/// A family of models whose keys must not be rounded so far, with the figure that says why. To measure it again, or another
/// model: `reprise-cli bench kv-quality --forced`.
struct Refusal {
    architecture: Architecture,
    num_layers: usize,
    hidden_size: usize,
    /// Refused for keys.
    key: KvDtype,
    /// What is used instead.
    instead: KvDtype,
    /// What the refused format costs.
    figure: &'static str,
}

const REFUSALS: [Refusal; 1] = [
    // SmolLM2 135M and its fine-tunings.
    Refusal {
        architecture: Architecture::Llama,
        num_layers: 30,
        hidden_size: 576,
        key: KvDtype::Q4,
        instead: KvDtype::Q8,
        figure: "perplexity +3 %",
    },
];

impl ModelConfig {
    /// The format that this model gets when `asked` is asked for, and why if it is another one.
    pub fn kv_format(&self, asked: KvFormat) -> (KvFormat, Option<String>) {
        let (mut format, mut reason) = asked.fitting(self.head_dim);
        let refusal = REFUSALS.iter().find(|refusal| {
            refusal.architecture == self.architecture
                && refusal.num_layers == self.num_layers
                && refusal.hidden_size == self.hidden_size
                && refusal.key == format.key
        });
        if let Some(refusal) = refusal {
            format.key = refusal.instead;
            reason = Some(format!(
                "{} keys cost this model too much ({}); {format} is used",
                refusal.key.name(),
                refusal.figure
            ));
        }
        (format, reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RopeScaling;

    #[test]
    fn a_format_that_was_measured_to_fail_is_refused_with_its_figure() {
        let mut config = ModelConfig {
            architecture: Architecture::Llama,
            num_layers: 30,
            hidden_size: 576,
            intermediate_size: 1536,
            num_heads: 9,
            num_kv_heads: 3,
            head_dim: 64,
            vocab_size: 49_152,
            context_length: 2048,
            norm_eps: 1e-5,
            rope_base: 1e4,
            rope_scaling: RopeScaling::None,
        };
        let (format, reason) = config.kv_format(KvFormat::Q4);
        assert_eq!(format.to_string(), "q8/q4");
        assert!(reason.unwrap().contains('%'));
        for format in [KvFormat::F16, KvFormat::Q8] {
            assert_eq!(config.kv_format(format), (format, None));
        }
        config.num_layers = 16;
        assert_eq!(config.kv_format(KvFormat::Q4), (KvFormat::Q4, None));
    }
}
