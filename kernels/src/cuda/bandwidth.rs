//! How fast a device's memory is.

use std::sync::Arc;
use std::time::Instant;

use super::{Buffer, Device};
use crate::Result;

/// Bytes of a copy: far more than a cache holds.
const COPY_BYTES: usize = 256 << 20;
/// Copies of a measurement.
const COPIES: u32 = 20;

/// Bytes that the device's memory moves in a second when it copies to itself, those read and those written both counted: what no
/// kernel can exceed.
///
/// # Errors
/// When there is no memory for it, or the device fails.
pub fn copy_bytes_per_s(device: &Arc<Device>) -> Result<f64> {
    let [from, to] = [
        Buffer::new(device, COPY_BYTES)?,
        Buffer::new(device, COPY_BYTES)?,
    ];
    from.clear(0, COPY_BYTES)?;
    let copy = || device.copy(from.address(), to.address(), COPY_BYTES);
    copy()?;
    device.synchronize()?;
    let start = Instant::now();
    (0..COPIES).try_for_each(|_| copy())?;
    device.synchronize()?;
    let bytes = 2.0 * COPY_BYTES as f64 * f64::from(COPIES);
    Ok(bytes / start.elapsed().as_secs_f64())
}
