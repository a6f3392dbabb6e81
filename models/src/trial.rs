//! What a device is tried with before it is used for a model, from the model file's header alone.

use std::path::Path;

use candle_core::quantized::GgmlDType;
use kernels::KvFormat;
use kernels::cuda::{Formats, Trial};

use crate::config::ModelConfig;
use crate::decoder::{has_bias, params};
use crate::error::Result;
use crate::gguf::GgufFile;

/// Trials in which every kernel runs that the model's calls launch: that of the first layer, and those of layers with a format
/// that none before has. Keys and values are kept as in `kv`, where the model can have that.
///
/// # Errors
/// As [`crate::inspect`].
pub fn trials(path: &Path, kv: KvFormat) -> Result<Vec<Trial>> {
    let file = GgufFile::open(path)?;
    let config = ModelConfig::read(&file)?;
    let (format, _) = config.kv_format(kv);
    let mut tried: Vec<GgmlDType> = Vec::new();
    let mut trials = Vec::new();
    for index in 0..config.num_layers {
        let formats = formats(&file, index)?;
        let of_layer = of_layer(&formats);
        if of_layer.iter().all(|format| tried.contains(format)) {
            continue;
        }
        tried.extend(of_layer);
        let has_biases = ["attn_q", "attn_k", "attn_v"]
            .iter()
            .any(|part| has_bias(&file, &config, &format!("blk.{index}.{part}")));
        trials.push(Trial::new(
            params(&config),
            config.kv_layout(format),
            (config.hidden_size, config.intermediate_size),
            formats,
            (has_biases, config.has_head_norms()),
        ));
    }
    Ok(trials)
}

fn formats(file: &GgufFile, index: usize) -> Result<Formats> {
    let of = |name: &str| file.tensor(name).map(|tensor| tensor.dtype);
    let of_layer = |part: &str| of(&format!("blk.{index}.{part}.weight"));
    const HEAD: &str = "output.weight";
    Ok(Formats {
        embedding: of("token_embd.weight")?,
        head: file.has_tensor(HEAD).then(|| of(HEAD)).transpose()?,
        projections: [
            of_layer("attn_q")?,
            of_layer("attn_k")?,
            of_layer("attn_v")?,
        ],
        output: of_layer("attn_output")?,
        gate_up: [of_layer("ffn_gate")?, of_layer("ffn_up")?],
        down: of_layer("ffn_down")?,
    })
}

fn of_layer(formats: &Formats) -> Vec<GgmlDType> {
    let mut all = formats.projections.to_vec();
    all.extend(formats.gate_up);
    all.extend([formats.output, formats.down]);
    all
}
