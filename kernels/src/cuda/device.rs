//! A GPU through its driver: memory, and kernels that run in the order in which they are launched.
//!
//! The driver is the only library that is needed, and it is looked for when a device is first asked for: where there is none,
//! [`Unavailable`] says why. There is one stream for kernels. Copies to and from the host go through pinned memory, on a stream
//! of their own that waits for the kernels before them, and kernels wait for the copies before them, so that everything happens
//! in the order of the calls.

mod copies;
mod launches;

use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{DriverError, result, sys};

use super::Source;
use super::landing::Ring;
use super::staging::Staging;
use super::unavailable::Unavailable;
use crate::{Error, Result};
use launches::Loaded;

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

    /// Gives an event back; who waits for it has been told what for.
    pub(super) fn forget_event(&self, event: sys::CUevent) {
        // SAFETY: the caller's, who uses it no more. A device that has failed has nobody to tell.
        let _ = self
            .enter()
            .map(|()| unsafe { result::event::destroy(event) });
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

/// The error of a call that the driver refused. Code, graphs and copies take memory, too, and the device is well without it.
fn failed(attempt: &'static str) -> impl Fn(DriverError) -> Error {
    move |error| match error.0 {
        sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => Error::DeviceMemory { attempt },
        _ => Error::Device {
            attempt,
            reason: super::unavailable::name_of(error),
        },
    }
}
