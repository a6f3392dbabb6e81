//! A GPU through its driver: memory, and kernels that run in the order in which they are launched.
//!
//! The driver is the only library that is needed, and it is looked for when a device is first asked for: where there is none,
//! [`Unavailable`] says why. There is one stream for kernels. Copies to and from the host go through pinned memory, on a stream
//! of their own that waits for the kernels before them, and kernels wait for the copies before them, so that everything happens
//! in the order of the calls.

mod copies;

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{DriverError, result, sys};

use super::landing::Ring;
use super::staging::Staging;
use super::unavailable::Unavailable;
use super::{Argument, Launch, Source};
use crate::{Error, Result};

/// Dynamic shared memory that a kernel has without being allowed more, in bytes.
const USUAL_SHARED_BYTES: u32 = 48 << 10;

/// What is known of a GPU before it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its number among the machine's devices, from 0.
    pub ordinal: usize,
    /// As the driver calls it.
    pub name: String,
    /// 80 for 8.0.
    pub compute_capability: u32,
    /// All of its memory, in bytes.
    pub memory_bytes: u64,
}

/// A device's memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// What nobody holds.
    pub free_bytes: u64,
    /// All of it.
    pub total_bytes: u64,
}

/// An open device. Dropping the last handle gives everything back.
pub struct Device {
    info: DeviceInfo,
    handle: sys::CUdevice,
    context: sys::CUcontext,
    kernels: sys::CUstream,
    staging: Mutex<Staging>,
    ring: Ring,
    loaded: Mutex<Loaded>,
}

#[derive(Default)]
struct Loaded {
    modules: HashMap<Source, sys::CUmodule>,
    /// Kernels, and the shared memory that each is allowed.
    functions: HashMap<(Source, String), (sys::CUfunction, u32)>,
}

// SAFETY: the driver's handles may be used from any thread once the context is current there, which every call sees to.
unsafe impl Send for Device {}
// SAFETY: as above; what calls share is behind locks.
unsafe impl Sync for Device {}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device({}, {})", self.info.ordinal, self.info.name)
    }
}

/// The devices of this machine.
///
/// # Errors
/// Why there is none.
pub fn devices() -> std::result::Result<Vec<DeviceInfo>, Unavailable> {
    super::unavailable::guarded(|| {
        super::unavailable::check_driver()?;
        let count = result::device::get_count().map_err(Unavailable::driver)?;
        let devices = (0..count).map(|ordinal| Ok(describe(ordinal)?.0));
        let devices: Vec<DeviceInfo> = devices.collect::<std::result::Result<_, Unavailable>>()?;
        match devices.is_empty() {
            true => Err(Unavailable::NoDevice),
            false => Ok(devices),
        }
    })
}

fn describe(ordinal: i32) -> std::result::Result<(DeviceInfo, sys::CUdevice), Unavailable> {
    use sys::CUdevice_attribute as Attribute;
    let handle = result::device::get(ordinal).map_err(Unavailable::driver)?;
    // SAFETY: a device that the driver has just given.
    let of = |attribute| unsafe { result::device::get_attribute(handle, attribute) };
    let major = of(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    let minor = of(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    // SAFETY: as above.
    let memory = unsafe { result::device::total_mem(handle) };
    let info = DeviceInfo {
        ordinal: ordinal as usize,
        name: result::device::get_name(handle).map_err(Unavailable::driver)?,
        compute_capability: (10 * major.map_err(Unavailable::driver)?
            + minor.map_err(Unavailable::driver)?) as u32,
        memory_bytes: memory.map_err(Unavailable::driver)? as u64,
    };
    Ok((info, handle))
}

impl Device {
    /// Opens a device.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn open(ordinal: usize) -> std::result::Result<Arc<Device>, Unavailable> {
        super::unavailable::guarded(|| {
            super::unavailable::check_driver()?;
            let count = result::device::get_count().map_err(Unavailable::driver)?;
            let ordinal = i32::try_from(ordinal)
                .ok()
                .filter(|ordinal| *ordinal < count);
            let ordinal = ordinal.ok_or(Unavailable::NoDevice)?;
            let (info, handle) = describe(ordinal)?;
            if Source::ALL
                .iter()
                .all(|source| source.ptx(info.compute_capability).is_none())
            {
                return Err(Unavailable::DeviceTooOld {
                    name: info.name,
                    compute_capability: info.compute_capability,
                });
            }
            Device::with(info, handle)
                .map(Arc::new)
                .map_err(Unavailable::driver)
        })
    }

    fn with(info: DeviceInfo, handle: sys::CUdevice) -> std::result::Result<Device, DriverError> {
        // SAFETY: a device that the driver has given; the context is released when the device is dropped.
        let context = unsafe { result::primary_ctx::retain(handle)? };
        // SAFETY: just retained.
        let opened = unsafe { result::ctx::set_current(context) }.and_then(|()| {
            let kernels = result::stream::create(result::stream::StreamKind::NonBlocking)?;
            Ok((kernels, Staging::new()?))
        });
        match opened {
            Ok((kernels, staging)) => Ok(Device {
                info,
                handle,
                context,
                kernels,
                staging: Mutex::new(staging),
                ring: Ring::default(),
                loaded: Mutex::default(),
            }),
            Err(error) => {
                // SAFETY: retained above.
                let _ = unsafe { result::primary_ctx::release(handle) };
                Err(error)
            }
        }
    }

    /// What it is.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// 80 for 8.0.
    pub fn compute_capability(&self) -> u32 {
        self.info.compute_capability
    }

    /// Its memory now.
    ///
    /// # Errors
    /// When the driver does not say.
    pub fn memory(&self) -> Result<DeviceMemory> {
        self.enter()?;
        let (free, total) = result::mem_get_info().map_err(failed("ask for its memory"))?;
        Ok(DeviceMemory {
            free_bytes: free as u64,
            total_bytes: total as u64,
        })
    }

    /// Memory for kernels; what it holds is of no meaning. Never more than is free: where the driver would give memory of the host
    /// in its place, as on Windows, kernels would run at the speed of the link.
    ///
    /// # Errors
    /// [`Error::Memory`] when there is none.
    pub(super) fn allocate(&self, bytes: usize) -> Result<u64> {
        if self.memory()?.free_bytes < bytes as u64 {
            return Err(Error::Memory { bytes });
        }
        // SAFETY: memory that kernels alone touch.
        match unsafe { result::malloc_sync(bytes.max(1)) } {
            Ok(address) => Ok(address),
            Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => {
                Err(Error::Memory { bytes })
            }
            Err(error) => Err(failed("allocate memory")(error)),
        }
    }

    /// Gives memory back; kernels that were launched before still have it.
    pub(super) fn free(&self, address: u64) {
        // The driver waits for the kernels that run.
        // SAFETY: allocated by this device, and given back once.
        let freed = self.enter().map(|()| unsafe { result::free_sync(address) });
        debug_assert!(!matches!(
            freed,
            Ok(Err(DriverError(sys::CUresult::CUDA_ERROR_INVALID_VALUE)))
        ));
    }

    /// Fills memory with zeros.
    pub(super) fn clear(&self, address: u64, bytes: usize) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's buffer is that long.
        unsafe { result::memset_d8_async(address, 0, bytes, self.kernels) }
            .map_err(failed("clear memory"))
    }

    /// Copies on the device.
    pub(super) fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's buffers are that long.
        unsafe { result::memcpy_dtod_async(to, from, bytes, self.kernels) }
            .map_err(failed("copy its memory"))
    }

    /// Launches a kernel. What it does wrong is told by a later call.
    ///
    /// # Errors
    /// When the driver refuses it.
    pub(super) fn launch(&self, launch: &Launch) -> Result<()> {
        self.enter()?;
        let function = self.function(launch)?;
        let values: Vec<u64> = launch.arguments.iter().map(bits).collect();
        let mut pointers: Vec<*mut c_void> = values
            .iter()
            .map(|value| std::ptr::from_ref(value).cast_mut().cast())
            .collect();
        let [x, y, z] = launch.grid;
        // SAFETY: the arguments are those that the launch was made with, for this kernel; the driver copies them.
        unsafe {
            result::launch_kernel(
                function,
                (x, y, z),
                (launch.threads, 1, 1),
                launch.shared_bytes,
                self.kernels,
                &mut pointers,
            )
        }
        .map_err(failed("start a kernel"))
    }

    /// Records what `launches` would do, to be run as a whole later.
    pub(super) fn record(&self, launches: &[Launch]) -> Result<sys::CUgraphExec> {
        self.enter()?;
        // Finding a function may load a module, which must not happen while recording.
        launches
            .iter()
            .try_for_each(|launch| self.function(launch).map(drop))?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: our stream.
        unsafe { result::stream::begin_capture(self.kernels, mode) }.map_err(failed("record"))?;
        let launched = launches.iter().try_for_each(|launch| self.launch(launch));
        // SAFETY: our stream, which is recording.
        let graph = unsafe { result::stream::end_capture(self.kernels) };
        launched?;
        let graph = graph.map_err(failed("record"))?;
        let flags = sys::CUgraphInstantiate_flags(0);
        // SAFETY: just recorded; the executable form does not need it any more.
        unsafe {
            let executable = result::graph::instantiate(graph, flags);
            let _ = result::graph::destroy(graph);
            executable.map_err(failed("prepare what was recorded"))
        }
    }

    /// Runs what was recorded.
    pub(super) fn replay(&self, graph: sys::CUgraphExec) -> Result<()> {
        self.enter()?;
        // SAFETY: recorded by this device and not forgotten.
        unsafe { result::graph::launch(graph, self.kernels) }.map_err(failed("start a graph"))
    }

    /// Forgets what was recorded.
    pub(super) fn forget(&self, graph: sys::CUgraphExec) {
        if self.enter().is_ok() {
            // SAFETY: recorded by this device, and forgotten once; kernels of it that run still end.
            let _ = unsafe { result::graph::exec_destroy(graph) };
        }
    }

    /// Waits for everything that was launched.
    ///
    /// # Errors
    /// When one of the kernels went wrong.
    pub fn synchronize(&self) -> Result<()> {
        self.enter()?;
        // SAFETY: our stream.
        unsafe { result::stream::synchronize(self.kernels) }.map_err(failed("compute"))
    }

    /// The kernel of a launch, with as much shared memory as that takes.
    fn function(&self, launch: &Launch) -> Result<sys::CUfunction> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (launch.source, launch.kernel.clone());
        let (function, allowed) = match loaded.functions.get(&key) {
            Some(known) => *known,
            None => {
                let module = self.module(&mut loaded, launch.source)?;
                let name = CString::new(launch.kernel.as_str()).unwrap_or_default();
                // SAFETY: a module that is never unloaded before the device is dropped.
                let function = unsafe { result::module::get_function(module, name) }
                    .map_err(failed("find a kernel"))?;
                (function, USUAL_SHARED_BYTES)
            }
        };
        if launch.shared_bytes > allowed {
            use sys::CUfunction_attribute_enum as Attribute;
            let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let bytes = launch.shared_bytes as i32;
            // SAFETY: a function of ours.
            unsafe { result::function::set_function_attribute(function, attribute, bytes) }
                .map_err(failed("give a kernel its shared memory"))?;
        }
        let allowed = allowed.max(launch.shared_bytes);
        loaded.functions.insert(key, (function, allowed));
        Ok(function)
    }

    /// The driver compiles a text when it is first used, and remembers the result on disk.
    fn module(&self, loaded: &mut Loaded, source: Source) -> Result<sys::CUmodule> {
        if let Some(module) = loaded.modules.get(&source) {
            return Ok(*module);
        }
        let ptx = source.ptx(self.compute_capability()).ok_or_else(|| {
            let reason = format!("{source:?} has no text for {}", self.compute_capability());
            Error::argument("load kernels", reason)
        })?;
        let text = CString::new(ptx).unwrap_or_default();
        // SAFETY: a text that ends with a zero.
        let module = unsafe { result::module::load_data(text.as_ptr().cast()) }
            .map_err(failed("compile kernels"))?;
        loaded.modules.insert(source, module);
        Ok(module)
    }

    /// Makes the context this thread's own.
    fn enter(&self) -> Result<()> {
        // SAFETY: the context is retained as long as the device lives.
        unsafe { result::ctx::set_current(self.context) }.map_err(failed("be used"))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.enter().is_err() {
            return;
        }
        let loaded = std::mem::take(
            self.loaded
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner),
        );
        // SAFETY: all of it is ours and used no more. Errors are those of a driver that has given up, and there is nobody to tell.
        unsafe {
            let _ = result::stream::synchronize(self.kernels);
            self.staging
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner)
                .free();
            self.ring.free();
            for module in loaded.modules.into_values() {
                let _ = result::module::unload(module);
            }
            let _ = result::stream::destroy(self.kernels);
            let _ = result::primary_ctx::release(self.handle);
        }
    }
}

/// An argument in the first bytes of a word, as little endian machines have it.
fn bits(argument: &Argument) -> u64 {
    match *argument {
        Argument::Address(value) | Argument::U64(value) => value,
        Argument::U32(value) => value.into(),
        Argument::F32(value) => value.to_bits().into(),
    }
}

/// The error of a call that the driver refused.
fn failed(attempt: &'static str) -> impl Fn(DriverError) -> Error {
    move |error| Error::Device {
        attempt,
        reason: super::unavailable::name_of(error),
    }
}
