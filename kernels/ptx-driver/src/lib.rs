//! The CUDA driver's functions that Reprise calls, over a device that interprets PTX. Only tests use it.
//!
//! A program that finds this library as `libcuda.so.1` runs as it would on a GPU: it opens a device, allocates, copies, compiles
//! and launches through the same functions, and what a GPU must not do (see `ptx_interpreter`) ends the launch with an error,
//! told on standard error. Everything happens in the order of the calls; streams and events are there in name only, so that it
//! does not find out whether a program waits where it must.
//!
//! The device is described by the environment: `PTX_DRIVER_VERSION` (13000), `PTX_DRIVER_DEVICES` (1),
//! `PTX_DRIVER_COMPUTE_CAPABILITY` (80), `PTX_DRIVER_MEMORY_BYTES` (1 GiB). `PTX_DRIVER_LAUNCHES` is the number of launches that
//! succeed before one fails, as when a GPU falls over.

mod device;
mod stand_in;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;

use device::{Device, Fault, setting};
pub use stand_in::{install, library, load};

/// A result as the driver numbers it.
type Result = c_int;

const SUCCESS: Result = 0;
const INVALID_VALUE: Result = 1;
const OUT_OF_MEMORY: Result = 2;
const NO_DEVICE: Result = 100;
const INVALID_DEVICE: Result = 101;
const INVALID_PTX: Result = 218;
const NOT_FOUND: Result = 500;
const LAUNCH_FAILED: Result = 719;

const NAMES: [(Result, &CStr); 7] = [
    (INVALID_VALUE, c"CUDA_ERROR_INVALID_VALUE"),
    (OUT_OF_MEMORY, c"CUDA_ERROR_OUT_OF_MEMORY"),
    (NO_DEVICE, c"CUDA_ERROR_NO_DEVICE"),
    (INVALID_DEVICE, c"CUDA_ERROR_INVALID_DEVICE"),
    (INVALID_PTX, c"CUDA_ERROR_INVALID_PTX"),
    (NOT_FOUND, c"CUDA_ERROR_NOT_FOUND"),
    (LAUNCH_FAILED, c"CUDA_ERROR_LAUNCH_FAILED"),
];

/// Attributes that are asked for.
const COMPUTE_CAPABILITY_MAJOR: c_int = 75;
const COMPUTE_CAPABILITY_MINOR: c_int = 76;

/// What stands for contexts, streams and events, of which there is one each.
const HANDLE: *mut c_void = ptr::without_provenance_mut(0x100);

/// Runs a call on the device and translates what went wrong.
fn on_device(call: impl FnOnce(&mut Device) -> std::result::Result<(), Fault>) -> Result {
    match device::with(call) {
        Ok(()) => SUCCESS,
        Err(fault) => {
            if !matches!(fault, Fault::OutOfMemory) {
                eprintln!("ptx-driver: {fault}");
            }
            match fault {
                Fault::OutOfMemory => OUT_OF_MEMORY,
                Fault::Access(_) => INVALID_VALUE,
                Fault::Text(_) => INVALID_PTX,
                Fault::Missing(_) => NOT_FOUND,
                Fault::Launch(_) => LAUNCH_FAILED,
            }
        }
    }
}

/// Writes an answer where the caller wants it.
///
/// # Safety
/// `out` is null or a place for it.
unsafe fn answer<T>(out: *mut T, value: T) -> Result {
    if out.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller's promise.
    unsafe { out.write(value) };
    SUCCESS
}

macro_rules! driver {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As the driver's function of this name demands.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, reason = "the driver's names")]
            pub unsafe extern "C" fn $name($($arg: $ty),*) -> Result $body
        )*
    };
}

driver! {
    /// Begins.
    fn cuInit(_flags: c_uint) {
        match setting("PTX_DRIVER_DEVICES", 1) {
            0 => NO_DEVICE,
            _ => SUCCESS,
        }
    }

    /// The version of CUDA that the driver knows.
    fn cuDriverGetVersion(version: *mut c_int) {
        // SAFETY: the caller's promise.
        unsafe { answer(version, setting("PTX_DRIVER_VERSION", 13_000) as c_int) }
    }

    /// The name of an error.
    fn cuGetErrorName(error: Result, name: *mut *const c_char) {
        let known = NAMES.iter().find(|(number, _)| *number == error);
        let text = known.map_or(c"CUDA_ERROR_UNKNOWN", |(_, name)| name);
        // SAFETY: the caller's promise.
        unsafe { answer(name, text.as_ptr()) }
    }

    /// Devices.
    fn cuDeviceGetCount(count: *mut c_int) {
        // SAFETY: the caller's promise.
        unsafe { answer(count, setting("PTX_DRIVER_DEVICES", 1) as c_int) }
    }

    /// A device.
    fn cuDeviceGet(device: *mut c_int, ordinal: c_int) {
        if !(0..setting("PTX_DRIVER_DEVICES", 1) as c_int).contains(&ordinal) {
            return INVALID_DEVICE;
        }
        // SAFETY: the caller's promise.
        unsafe { answer(device, ordinal) }
    }

    /// Its name.
    fn cuDeviceGetName(name: *mut c_char, len: c_int, _device: c_int) {
        let text = c"PTX interpreter".to_bytes_with_nul();
        if name.is_null() || (len as usize) < text.len() {
            return INVALID_VALUE;
        }
        // SAFETY: as long as the caller says.
        unsafe { name.copy_from_nonoverlapping(text.as_ptr().cast(), text.len()) };
        SUCCESS
    }

    /// An attribute.
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, _device: c_int) {
        let capability = setting("PTX_DRIVER_COMPUTE_CAPABILITY", 80) as c_int;
        let known = match attribute {
            COMPUTE_CAPABILITY_MAJOR => capability / 10,
            COMPUTE_CAPABILITY_MINOR => capability % 10,
            _ => return INVALID_VALUE,
        };
        // SAFETY: the caller's promise.
        unsafe { answer(value, known) }
    }

    /// All memory.
    fn cuDeviceTotalMem_v2(bytes: *mut usize, _device: c_int) {
        // SAFETY: the caller's promise.
        unsafe { answer(bytes, device::memory_bytes()) }
    }

    /// The one context.
    fn cuDevicePrimaryCtxRetain(context: *mut *mut c_void, _device: c_int) {
        // SAFETY: the caller's promise.
        unsafe { answer(context, HANDLE) }
    }

    /// Nothing.
    fn cuDevicePrimaryCtxRelease_v2(_device: c_int) {
        SUCCESS
    }

    /// Nothing: there is one context.
    fn cuCtxSetCurrent(_context: *mut c_void) {
        SUCCESS
    }

    /// The one stream.
    fn cuStreamCreate(stream: *mut *mut c_void, _flags: c_uint) {
        // SAFETY: the caller's promise.
        unsafe { answer(stream, HANDLE) }
    }

    /// What went wrong before is told here.
    fn cuStreamSynchronize(_stream: *mut c_void) {
        on_device(|device| device.check())
    }

    /// Nothing.
    fn cuStreamDestroy_v2(_stream: *mut c_void) {
        SUCCESS
    }

    /// Nothing: everything happens in order.
    fn cuStreamWaitEvent(_stream: *mut c_void, _event: *mut c_void, _flags: c_uint) {
        SUCCESS
    }

    /// The one event.
    fn cuEventCreate(event: *mut *mut c_void, _flags: c_uint) {
        // SAFETY: the caller's promise.
        unsafe { answer(event, HANDLE) }
    }

    /// Nothing.
    fn cuEventRecord(_event: *mut c_void, _stream: *mut c_void) {
        SUCCESS
    }

    /// What went wrong before is told here.
    fn cuEventSynchronize(_event: *mut c_void) {
        on_device(|device| device.check())
    }

    /// Nothing.
    fn cuEventDestroy_v2(_event: *mut c_void) {
        SUCCESS
    }

    /// Memory of no meaning.
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) {
        on_device(|device| {
            let found = device.allocate(bytes)?;
            // SAFETY: the caller's promise.
            match unsafe { answer(address, found) } {
                SUCCESS => Ok(()),
                _ => Err(Fault::Access("no place for an address".into())),
            }
        })
    }

    /// Gives it back.
    fn cuMemFree_v2(address: u64) {
        on_device(|device| device.free(address))
    }

    /// Free and all memory.
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        on_device(|device| {
            // SAFETY: the caller's promise.
            unsafe {
                answer(free, device.free_bytes());
                answer(total, device::memory_bytes());
            }
            Ok(())
        })
    }

    /// Memory of the host of no meaning.
    fn cuMemHostAlloc(bytes: *mut *mut c_void, len: usize, _flags: c_uint) {
        on_device(|device| {
            let pinned = device.pin(len)?;
            // SAFETY: the caller's promise.
            unsafe { answer(bytes, pinned.cast()) };
            Ok(())
        })
    }

    /// Gives it back.
    fn cuMemFreeHost(bytes: *mut c_void) {
        on_device(|device| device.unpin(bytes.cast()))
    }

    /// To the device.
    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, len: usize, _stream: *mut c_void) {
        // SAFETY: the caller's promise.
        let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), len) };
        on_device(|device| device.write(to, bytes))
    }

    /// From the device.
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, len: usize, _stream: *mut c_void) {
        // SAFETY: the caller's promise.
        let out = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), len) };
        on_device(|device| device.read(from, out))
    }

    /// On the device.
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, len: usize, _stream: *mut c_void) {
        on_device(|device| device.copy(from, to, len))
    }

    /// Fills memory.
    fn cuMemsetD8Async(to: u64, value: u8, len: usize, _stream: *mut c_void) {
        on_device(|device| device.write(to, &vec![value; len]))
    }

    /// Takes a text.
    fn cuModuleLoadData(module: *mut *mut c_void, text: *const c_void) {
        // SAFETY: the caller's promise: it ends with a zero.
        let text = unsafe { CStr::from_ptr(text.cast()) };
        on_device(|device| {
            let number = device.load(&text.to_string_lossy())?;
            // SAFETY: the caller's promise.
            unsafe { answer(module, ptr::without_provenance_mut(number)) };
            Ok(())
        })
    }

    /// Nothing: texts stay.
    fn cuModuleUnload(_module: *mut c_void) {
        SUCCESS
    }

    /// A kernel of a text.
    fn cuModuleGetFunction(function: *mut *mut c_void, module: *mut c_void, name: *const c_char) {
        // SAFETY: the caller's promise: it ends with a zero.
        let name = unsafe { CStr::from_ptr(name) };
        on_device(|device| {
            let number = device.function(module.addr(), &name.to_string_lossy())?;
            // SAFETY: the caller's promise.
            unsafe { answer(function, ptr::without_provenance_mut(number)) };
            Ok(())
        })
    }

    /// How much dynamic shared memory a kernel may have.
    fn cuFuncSetAttribute(function: *mut c_void, _attribute: c_int, value: c_int) {
        on_device(|device| device.allow(function.addr(), value as u32))
    }

    /// Records what is launched from now on.
    fn cuStreamBeginCapture_v2(_stream: *mut c_void, _mode: c_uint) {
        on_device(|device| device.begin_recording())
    }

    /// What was recorded.
    fn cuStreamEndCapture(_stream: *mut c_void, graph: *mut *mut c_void) {
        on_device(|device| {
            let number = device.end_recording()?;
            // SAFETY: the caller's promise.
            unsafe { answer(graph, ptr::without_provenance_mut(number)) };
            Ok(())
        })
    }

    /// The same, to be run.
    fn cuGraphInstantiateWithFlags(to_run: *mut *mut c_void, graph: *mut c_void, _flags: u64) {
        // SAFETY: the caller's promise.
        unsafe { answer(to_run, graph) }
    }

    /// Runs it.
    fn cuGraphLaunch(graph: *mut c_void, _stream: *mut c_void) {
        on_device(|device| device.replay(graph.addr()))
    }

    /// Nothing: what was recorded stays.
    fn cuGraphDestroy(_graph: *mut c_void) {
        SUCCESS
    }

    /// Nothing, as above.
    fn cuGraphExecDestroy(_graph: *mut c_void) {
        SUCCESS
    }

    /// Runs a kernel to its end.
    fn cuLaunchKernel(
        function: *mut c_void,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared_bytes: c_uint,
        _stream: *mut c_void,
        arguments: *mut *mut c_void,
        _extra: *mut *mut c_void,
    ) {
        let grid = [grid_x, grid_y, grid_z];
        let block = [block_x, block_y, block_z];
        on_device(|device| {
            let sizes = device.parameters(function.addr())?;
            let values = sizes.iter().enumerate().map(|(i, size)| {
                // SAFETY: the caller's promise: a pointer to a value for each parameter.
                let at = unsafe { *arguments.add(i) };
                match size {
                    // SAFETY: as above; values are aligned.
                    4 => unsafe { at.cast::<u32>().read() }.into(),
                    // SAFETY: as above.
                    _ => unsafe { at.cast::<u64>().read() },
                }
            });
            let values: Vec<u64> = values.collect();
            device.launch(function.addr(), (grid, block), shared_bytes, &values)
        })
    }
}
