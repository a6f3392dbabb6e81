//! Cosines and sines of the rotary positions, grown as far as they are used.

use std::sync::{Arc, Mutex};

use crate::config::{ModelConfig, RopeScaling};

/// Angles as the reference implementations compute them (f32 frequency × f32 position); the cosine itself in f64, so
/// that it does not depend on the platform's f32 functions. A row depends on its position only, never on the size.
pub(crate) struct RopeTable {
    inverse_frequencies: Vec<f32>,
    grown: Mutex<Option<Arc<Rows>>>,
}

pub(crate) struct Rows {
    len: usize,
    /// [len, head_dim / 2]
    pub(crate) cos: Vec<f32>,
    /// [len, head_dim / 2]
    pub(crate) sin: Vec<f32>,
}

const FIRST: usize = 1024;

/// Rows that are computed when `len` positions are asked for.
pub(crate) fn rows_for(len: usize) -> usize {
    len.next_power_of_two().max(FIRST)
}

impl RopeTable {
    pub(crate) fn new(config: &ModelConfig) -> RopeTable {
        let half = config.head_dim / 2;
        let inverse_frequencies = (0..half)
            .map(|i| {
                let exponent = (2 * i) as f64 / config.head_dim as f64;
                let frequency = (1.0 / f64::from(config.rope_base).powf(exponent)) as f32;
                match &config.rope_scaling {
                    RopeScaling::None => frequency,
                    RopeScaling::Linear(factor) => frequency / factor,
                    RopeScaling::PerFrequency(factors) => frequency / factors[i],
                }
            })
            .collect();
        RopeTable {
            inverse_frequencies,
            grown: Mutex::new(None),
        }
    }

    /// At least `len` positions.
    pub(crate) fn rows(&self, len: usize) -> Arc<Rows> {
        let mut grown = self
            .grown
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(rows) = grown.as_ref().filter(|rows| rows.len >= len) {
            return rows.clone();
        }
        let len = rows_for(len);
        let angles = (0..len).flat_map(|p| {
            self.inverse_frequencies
                .iter()
                .map(move |f| f64::from(p as f32 * f))
        });
        let (cos, sin) = angles.map(|a| (a.cos() as f32, a.sin() as f32)).unzip();
        let rows = Arc::new(Rows { len, cos, sin });
        *grown = Some(rows.clone());
        rows
    }
}
