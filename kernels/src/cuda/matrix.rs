//! Weights in a device's memory.

use std::sync::Arc;

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
        let (quants, scales) = matrix.bytes();
        let buffers = [Buffer::of(device, quants)?, Buffer::of(device, scales)?];
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
    fn upload(device: &Arc<Device>, projection: &Projection) -> Result<Self> {
        let bias = projection.bias.as_deref();
        Ok(Self {
            matrix: Matrix::upload(device, &projection.weight)?,
            bias: bias.map(|bias| Buffer::floats(device, bias)).transpose()?,
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
        let norm = |values: &Vec<f32>| Buffer::floats(device, values);
        let matrix = |matrix| Matrix::upload(device, matrix);
        let projection = |projection| ProjectionOnDevice::upload(device, projection);
        let head_norms = match &layer.head_norms {
            Some((query, key)) => Some((norm(query)?, norm(key)?)),
            None => None,
        };
        Ok(Self {
            attention_norm: norm(&layer.attention_norm)?,
            query: projection(&layer.query)?,
            key: projection(&layer.key)?,
            value: projection(&layer.value)?,
            output: matrix(&layer.output)?,
            head_norms,
            feed_forward_norm: norm(&layer.feed_forward_norm)?,
            gate: matrix(&layer.gate)?,
            up: matrix(&layer.up)?,
            down: matrix(&layer.down)?,
        })
    }

    pub(super) fn num_bytes(&self) -> usize {
        let projections = [&self.query, &self.key, &self.value].map(|p| &p.matrix);
        let matrices = [&self.output, &self.gate, &self.up, &self.down];
        let all = projections.into_iter().chain(matrices);
        all.map(Matrix::num_bytes).sum()
    }
}
