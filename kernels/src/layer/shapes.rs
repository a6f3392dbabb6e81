//! Whether layers fit each other and what they run on.

use super::{Layer, LayerParams, OP};
use crate::{Error, KvLayout, Result};

/// The widths of the residual stream and of the feed-forward; an error that names the first shape that does not fit.
pub(crate) fn check(
    layers: &[Layer],
    params: &LayerParams,
    layout: &KvLayout,
) -> Result<(usize, usize)> {
    let misfit = |reason: String| Err(Error::argument(OP, reason));
    let (Some(first), q) = (layers.first(), params.num_heads * layout.head_dim) else {
        return misfit("none".into());
    };
    if layout.num_layers != layers.len() {
        return misfit(format!("{} layers for {layout:?}", layers.len()));
    }
    if params.num_heads == 0
        || layout.num_kv_heads == 0
        || !params.num_heads.is_multiple_of(layout.num_kv_heads)
        || !layout.head_dim.is_multiple_of(2)
        || !layout.is_sound()
    {
        return misfit(format!("{} heads for {layout:?}", params.num_heads));
    }
    if params.attention.window == Some(0) {
        return misfit("a window of 0 tokens".into());
    }
    let (hidden, inner) = (first.attention_norm.len(), first.gate.rows());
    let kv = layout.row_elems();
    for (i, layer) in layers.iter().enumerate() {
        let matrices = [
            ("query", &layer.query.weight, q, hidden),
            ("key", &layer.key.weight, kv, hidden),
            ("value", &layer.value.weight, kv, hidden),
            ("output", &layer.output, hidden, q),
            ("gate", &layer.gate, inner, hidden),
            ("up", &layer.up, inner, hidden),
            ("down", &layer.down, hidden, inner),
        ];
        for (name, matrix, rows, cols) in matrices {
            if (matrix.rows(), matrix.cols()) != (rows, cols) {
                return misfit(format!(
                    "{name} of layer {i}: {matrix:?}, not {rows} x {cols}"
                ));
            }
        }
        let norms = layer.head_norms.iter().flat_map(|(q, k)| [q, k]);
        let vectors = [
            (&layer.attention_norm, hidden),
            (&layer.feed_forward_norm, hidden),
        ];
        let biases = [(&layer.query, q), (&layer.key, kv), (&layer.value, kv)];
        let vectors = vectors
            .into_iter()
            .chain(norms.map(|norm| (norm, layout.head_dim)))
            .chain(
                biases
                    .iter()
                    .filter_map(|(p, rows)| Some((p.bias.as_ref()?, *rows))),
            );
        for (vector, len) in vectors {
            if vector.len() != len {
                return misfit(format!(
                    "a vector of {} in layer {i}, not {len}",
                    vector.len()
                ));
            }
        }
    }
    Ok((hidden, inner))
}
