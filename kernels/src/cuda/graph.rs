//! Launches that were recorded once and are run as one.

use std::sync::Arc;

use cudarc::driver::sys;

use super::{Device, Launch};
use crate::Result;

/// A recorded sequence of launches.
#[derive(Debug)]
pub(super) struct Graph {
    device: Arc<Device>,
    graph: sys::CUgraphExec,
}

// SAFETY: the driver's handle may be used from any thread; one at a time does, by the decoder's lock.
unsafe impl Send for Graph {}

impl Graph {
    /// Records launches, whose arguments stay as they are. None where the device cannot do that: what it can is launch them.
    pub(super) fn record(device: &Arc<Device>, launches: &[Launch]) -> Option<Graph> {
        Some(Graph {
            device: Arc::clone(device),
            graph: device.record(launches).ok()?,
        })
    }

    /// Runs them, in order, after everything before.
    pub(super) fn run(&self) -> Result<()> {
        self.device.replay(self.graph)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        self.device.forget(self.graph);
    }
}
