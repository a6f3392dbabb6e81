//! Results as the driver numbers them.

use std::ffi::{CStr, c_int};

use crate::device::{self, Device};
use crate::fault::Fault;

/// A result as the driver numbers it.
pub(crate) type Code = c_int;

pub(crate) const SUCCESS: Code = 0;
pub(crate) const INVALID_VALUE: Code = 1;
const OUT_OF_MEMORY: Code = 2;
pub(crate) const NO_DEVICE: Code = 100;
pub(crate) const INVALID_DEVICE: Code = 101;
const INVALID_CONTEXT: Code = 201;
const INVALID_PTX: Code = 218;
const INVALID_HANDLE: Code = 400;
const NOT_FOUND: Code = 500;
const LAUNCH_FAILED: Code = 719;
const CAPTURE_UNSUPPORTED: Code = 900;

const NAMES: [(Code, &CStr); 10] = [
    (INVALID_VALUE, c"CUDA_ERROR_INVALID_VALUE"),
    (OUT_OF_MEMORY, c"CUDA_ERROR_OUT_OF_MEMORY"),
    (NO_DEVICE, c"CUDA_ERROR_NO_DEVICE"),
    (INVALID_DEVICE, c"CUDA_ERROR_INVALID_DEVICE"),
    (INVALID_CONTEXT, c"CUDA_ERROR_INVALID_CONTEXT"),
    (INVALID_PTX, c"CUDA_ERROR_INVALID_PTX"),
    (INVALID_HANDLE, c"CUDA_ERROR_INVALID_HANDLE"),
    (NOT_FOUND, c"CUDA_ERROR_NOT_FOUND"),
    (LAUNCH_FAILED, c"CUDA_ERROR_LAUNCH_FAILED"),
    (
        CAPTURE_UNSUPPORTED,
        c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
    ),
];

/// The driver's name for a result.
pub(crate) fn name(code: Code) -> &'static CStr {
    let known = NAMES.iter().find(|(number, _)| *number == code);
    known.map_or(c"CUDA_ERROR_UNKNOWN", |(_, name)| name)
}

/// Runs a call on the device, in the context of this thread, and translates what went wrong.
pub(crate) fn on_device(call: impl FnOnce(&mut Device) -> Result<(), Fault>) -> Code {
    let in_context = |device: &mut Device| match device.is_current() {
        true => call(device),
        false => Err(Fault::Context),
    };
    match device::with(in_context) {
        Ok(()) => SUCCESS,
        Err(fault) => {
            if !matches!(fault, Fault::OutOfMemory) {
                eprintln!("ptx-driver: {fault}");
            }
            match fault {
                Fault::OutOfMemory => OUT_OF_MEMORY,
                Fault::Context => INVALID_CONTEXT,
                Fault::Access(_) => INVALID_VALUE,
                Fault::Handle(_) => INVALID_HANDLE,
                Fault::Text(_) => INVALID_PTX,
                Fault::Missing(_) => NOT_FOUND,
                Fault::Recording(_) => CAPTURE_UNSUPPORTED,
                Fault::Failed(_) => LAUNCH_FAILED,
            }
        }
    }
}

/// Writes an answer where the caller wants it.
///
/// # Safety
/// `out` is null or a place for it.
pub(crate) unsafe fn answer<T>(out: *mut T, value: T) -> Code {
    if out.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller's promise.
    unsafe { out.write(value) };
    SUCCESS
}
