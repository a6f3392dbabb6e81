//! Weights in a device's memory.

use std::sync::Arc;

use super::buffer::Shared;
use super::{Buffer, Device, Weights};
use crate::layer::{Layer, Projection};
use crate::{QuantizedMatrix, Result};

/// A weight matrix as the CPU packs it, in a device's memory.
#[derive(Debug)]
pub(crate) struct Matrix {
    weights: Weights,
    /// Own the memory.
    buffers: [Buffer; 2],
}

impl Matrix {
    /// Copies a matrix to the device.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(crate) fn upload(device: &Arc<Device>, matrix: &QuantizedMatrix) -> Result<Matrix> {
        Self::upload_to(&mut Shared::new(device, Self::sizes(matrix))?, matrix)
    }

    /// Bytes of its buffers.
    fn sizes(matrix: &QuantizedMatrix) -> [usize; 2] {
        let (quants, scales) = matrix.bytes();
        [quants.len(), scales.len()]
    }

    fn upload_to(memory: &mut Shared, matrix: &QuantizedMatrix) -> Result<Matrix> {
        let (quants, scales) = matrix.bytes();
        let buffers = [memory.of(quants)?, memory.of(scales)?];
        Ok(Matrix {
            weights: Weights {
                format: matrix.dtype(),
                rows: matrix.rows(),
                cols: matrix.cols(),
                quants: buffers[0].address(),
                scales: buffers[1].address(),
            },
            buffers,
        })
    }

    pub(super) fn weights(&self) -> &Weights {
        &self.weights
    }

    /// Bytes on the device.
    pub(super) fn num_bytes(&self) -> usize {
        self.buffers.iter().map(Buffer::len).sum()
    }
}

/// A matrix and what is added to its product.
#[derive(Debug)]
pub(super) struct ProjectionOnDevice {
    pub(super) matrix: Matrix,
    /// `[rows]`
    pub(super) bias: Option<Buffer>,
}

impl ProjectionOnDevice {
    fn upload_to(memory: &mut Shared, projection: &Projection) -> Result<Self> {
        let bias = projection.bias.as_deref();
        Ok(Self {
            matrix: Matrix::upload_to(memory, &projection.weight)?,
            bias: bias.map(|bias| memory.floats(bias)).transpose()?,
        })
    }

    /// Address of the bias, 0 for none.
    pub(super) fn bias(&self) -> u64 {
        self.bias.as_ref().map_or(0, Buffer::address)
    }
}

/// The weights of one decoder layer, in a device's memory. The fields are those of [`Layer`].
#[derive(Debug)]
pub(super) struct LayerOnDevice {
    pub(super) attention_norm: Buffer,
    pub(super) query: ProjectionOnDevice,
    pub(super) key: ProjectionOnDevice,
    pub(super) value: ProjectionOnDevice,
    pub(super) output: Matrix,
    pub(super) head_norms: Option<(Buffer, Buffer)>,
    pub(super) feed_forward_norm: Buffer,
    pub(super) gate: Matrix,
    pub(super) up: Matrix,
    pub(super) down: Matrix,
}

impl LayerOnDevice {
    /// Copies a layer to the device.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(super) fn upload(device: &Arc<Device>, layer: &Layer) -> Result<Self> {
        let mut memory = Shared::new(device, sizes(layer))?;
        let memory = &mut memory;
        let head_norms = match &layer.head_norms {
            Some((query, key)) => Some((memory.floats(query)?, memory.floats(key)?)),
            None => None,
        };
        Ok(Self {
            attention_norm: memory.floats(&layer.attention_norm)?,
            query: ProjectionOnDevice::upload_to(memory, &layer.query)?,
            key: ProjectionOnDevice::upload_to(memory, &layer.key)?,
            value: ProjectionOnDevice::upload_to(memory, &layer.value)?,
            output: Matrix::upload_to(memory, &layer.output)?,
            head_norms,
            feed_forward_norm: memory.floats(&layer.feed_forward_norm)?,
            gate: Matrix::upload_to(memory, &layer.gate)?,
            up: Matrix::upload_to(memory, &layer.up)?,
            down: Matrix::upload_to(memory, &layer.down)?,
        })
    }

    pub(super) fn num_bytes(&self) -> usize {
        let projections = [&self.query, &self.key, &self.value].map(|p| &p.matrix);
        let matrices = [&self.output, &self.gate, &self.up, &self.down];
        let all = projections.into_iter().chain(matrices);
        all.map(Matrix::num_bytes).sum()
    }
}

/// Bytes of a layer's buffers.
fn sizes(layer: &Layer) -> Vec<usize> {
    let projections = [&layer.query, &layer.key, &layer.value];
    let matrices = [&layer.output, &layer.gate, &layer.up, &layer.down];
    let matrices = projections.map(|it| &it.weight).into_iter().chain(matrices);
    let head_norms = layer
        .head_norms
        .iter()
        .flat_map(|(query, key)| [query, key]);
    let norms = [&layer.attention_norm, &layer.feed_forward_norm];
    let vectors = norms.into_iter().chain(head_norms).map(Vec::len);
    let biases = projections.into_iter().flat_map(|it| &it.bias);
    let vectors = vectors.chain(biases.map(|bias| bias.len()));
    matrices
        .flat_map(Matrix::sizes)
        .chain(vectors.map(|len| len * size_of::<f32>()))
        .collect()
}
