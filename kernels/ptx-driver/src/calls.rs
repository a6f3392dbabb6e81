//! The driver's functions.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;

use crate::device::{self, setting};
use crate::fault::Fault;
use crate::result::{
    Code, INVALID_DEVICE, INVALID_VALUE, NO_DEVICE, SUCCESS, answer, name, on_device,
};
use crate::stream::Kind;
use crate::work::Launch;

/// Attributes that are asked for.
const COMPUTE_CAPABILITY_MAJOR: c_int = 75;
const COMPUTE_CAPABILITY_MINOR: c_int = 76;

/// What stands for the one context.
const CONTEXT: *mut c_void = ptr::without_provenance_mut(0x100);

macro_rules! driver {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As the driver's function of this name demands.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, reason = "the driver's names")]
            pub unsafe extern "C" fn $name($($arg: $ty),*) -> Code $body
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
    fn cuGetErrorName(error: Code, text: *mut *const c_char) {
        // SAFETY: the caller's promise.
        unsafe { answer(text, name(error).as_ptr()) }
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
        device::with(|device| device.num_contexts += 1);
        // SAFETY: the caller's promise.
        unsafe { answer(context, CONTEXT) }
    }

    /// It is there as long as somebody holds it.
    fn cuDevicePrimaryCtxRelease_v2(_device: c_int) {
        device::with(|device| device.num_contexts = device.num_contexts.saturating_sub(1));
        SUCCESS
    }

    /// Makes it this thread's own.
    fn cuCtxSetCurrent(context: *mut c_void) {
        device::set_current(context == CONTEXT);
        SUCCESS
    }

    /// A stream of its own.
    fn cuStreamCreate(stream: *mut *mut c_void, _flags: c_uint) {
        on_device(|device| {
            let number = device.streams.open(device::ahead());
            // SAFETY: the caller's promise.
            unsafe { answer(stream, ptr::without_provenance_mut(number)) };
            Ok(())
        })
    }

    /// Waits; what went wrong before is told here.
    fn cuStreamSynchronize(stream: *mut c_void) {
        on_device(|device| device.synchronize(stream.addr()))
    }

    /// What it was asked for still runs.
    fn cuStreamDestroy_v2(stream: *mut c_void) {
        on_device(|device| device.streams.close(stream.addr()))
    }

    /// Lets a stream wait.
    fn cuStreamWaitEvent(stream: *mut c_void, event: *mut c_void, _flags: c_uint) {
        on_device(|device| device.wait(stream.addr(), event.addr()))
    }

    /// An event that was never recorded.
    fn cuEventCreate(event: *mut *mut c_void, _flags: c_uint) {
        on_device(|device| {
            let number = device.streams.new_event();
            // SAFETY: the caller's promise.
            unsafe { answer(event, ptr::without_provenance_mut(number)) };
            Ok(())
        })
    }

    /// It stands for what the stream was asked for.
    fn cuEventRecord(event: *mut c_void, stream: *mut c_void) {
        on_device(|device| device.record(event.addr(), stream.addr()))
    }

    /// Waits; what went wrong before is told here.
    fn cuEventSynchronize(event: *mut c_void) {
        on_device(|device| device.synchronize_event(event.addr()))
    }

    /// Who waits for it still does.
    fn cuEventDestroy_v2(event: *mut c_void) {
        on_device(|device| device.streams.forget_event(event.addr()))
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

    /// Gives it back, when everything is done.
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
            unsafe { answer(bytes, pinned.cast::<c_void>()) };
            Ok(())
        })
    }

    /// Gives it back at once.
    fn cuMemFreeHost(bytes: *mut c_void) {
        on_device(|device| device.unpin(bytes.addr()))
    }

    /// To the device.
    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, len: usize, stream: *mut c_void) {
        // SAFETY: the caller's promise.
        on_device(|device| unsafe { device.write(stream.addr(), to, from.cast(), len) })
    }

    /// From the device.
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, len: usize, stream: *mut c_void) {
        // SAFETY: the caller's promise.
        on_device(|device| unsafe { device.read(stream.addr(), to.cast(), from, len) })
    }

    /// On the device.
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, len: usize, stream: *mut c_void) {
        on_device(|device| device.copy(stream.addr(), to, from, len))
    }

    /// Fills memory.
    fn cuMemsetD8Async(to: u64, value: u8, len: usize, stream: *mut c_void) {
        on_device(|device| device.fill(stream.addr(), to, value, len))
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
    fn cuStreamBeginCapture_v2(stream: *mut c_void, _mode: c_uint) {
        on_device(|device| device.begin_recording(stream.addr()))
    }

    /// What was recorded.
    fn cuStreamEndCapture(stream: *mut c_void, graph: *mut *mut c_void) {
        on_device(|device| {
            let number = device.end_recording(stream.addr())?;
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
    fn cuGraphLaunch(graph: *mut c_void, stream: *mut c_void) {
        on_device(|device| device.replay(graph.addr(), stream.addr()))
    }

    /// Nothing: what was recorded stays.
    fn cuGraphDestroy(_graph: *mut c_void) {
        SUCCESS
    }

    /// Nothing, as above.
    fn cuGraphExecDestroy(_graph: *mut c_void) {
        SUCCESS
    }

    /// Runs a kernel.
    fn cuLaunchKernel(
        function: *mut c_void,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared_bytes: c_uint,
        stream: *mut c_void,
        arguments: *mut *mut c_void,
        _extra: *mut *mut c_void,
    ) {
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
            let launch = Launch {
                function: function.addr(),
                grid: [grid_x, grid_y, grid_z],
                block: [block_x, block_y, block_z],
                shared_bytes,
                values: values.collect(),
            };
            device.launch(stream.addr(), launch)
        })
    }
}

/// Whether copies (1) or kernels (0) run ahead in streams that this thread makes from now on.
#[unsafe(no_mangle)]
pub extern "C" fn ptx_driver_run_ahead(copies: c_uint) {
    device::run_ahead(match copies {
        0 => Kind::Kernels,
        _ => Kind::Copies,
    });
}
