//! Why there is no GPU to use.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cudarc::driver::{DriverError, result, sys};

/// The oldest driver, as the version of CUDA that it knows: 12.0, which driver 525 brings. It has every function that is called,
/// and takes the kernels' texts (`cargo xtask kernels --check` has them assembled by the assembler of that version).
const LEAST_DRIVER: i32 = 12_000;

/// Why a GPU cannot be used; each reason says what to do where there is something to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// The driver's library is not there.
    #[error("no NVIDIA driver is installed")]
    NoDriver,
    /// The driver does not know what the kernels need.
    #[error(
        "the NVIDIA driver is too old: it knows CUDA {}.{}, and CUDA 12.0 is needed; install driver 525 or newer",
        found / 1000,
        found % 1000 / 10
    )]
    DriverTooOld {
        /// As the driver says: 11040 for 11.4.
        found: i32,
    },
    /// There is a driver and no such device.
    #[error("no NVIDIA GPU was found")]
    NoDevice,
    /// The device is older than all kernels.
    #[error("{name} is too old: it has compute capability {}.{}, and 7.5 is needed", compute_capability / 10, compute_capability % 10)]
    DeviceTooOld {
        /// The device.
        name: String,
        /// 61 for 6.1.
        compute_capability: u32,
    },
    /// The driver refuses to work.
    #[error(
        "the NVIDIA driver does not work ({0}); restart the machine, or install the driver anew"
    )]
    Driver(String),
    /// Somebody has the device for himself.
    #[error("another program has the GPU for itself; close it")]
    Taken,
    /// The device computes something else than the CPU.
    #[error("{name} failed its self-test: {reason}")]
    SelfTest {
        /// The device.
        name: String,
        /// What was wrong.
        reason: String,
    },
}

impl Unavailable {
    pub(super) fn driver(error: DriverError) -> Self {
        match error.0 {
            sys::CUresult::CUDA_ERROR_NO_DEVICE => Self::NoDevice,
            sys::CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE => Self::Taken,
            _ => Self::Driver(name_of(error)),
        }
    }
}

/// An error unless there is a driver that is new enough, which is then ready.
pub(super) fn check_driver() -> Result<(), Unavailable> {
    #[cfg(windows)]
    search_no_foreign_folders();
    // SAFETY: loads the driver's library, whose initialisers are trusted as every program's that uses the GPU.
    if !unsafe { sys::is_culib_present() } {
        return Err(Unavailable::NoDriver);
    }
    let mut found = 0;
    // SAFETY: a place for the answer.
    unsafe { sys::cuDriverGetVersion(&mut found) }
        .result()
        .map_err(Unavailable::driver)?;
    if found < LEAST_DRIVER {
        return Err(Unavailable::DriverTooOld { found });
    }
    result::init().map_err(Unavailable::driver)
}

/// Looks for libraries in the system's folder and the program's own, and not where the process happens to run: the driver's is
/// asked for by several names, which anybody could give to a file there.
#[cfg(windows)]
fn search_no_foreign_folders() {
    use windows_sys::Win32::System::LibraryLoader::{
        LOAD_LIBRARY_SEARCH_DEFAULT_DIRS, SetDefaultDllDirectories,
    };
    // SAFETY: takes no pointer.
    let changed = unsafe { SetDefaultDllDirectories(LOAD_LIBRARY_SEARCH_DEFAULT_DIRS) };
    debug_assert!(changed != 0);
}

/// A driver that lacks a function makes the binding panic; here that is a reason like others.
pub(super) fn guarded<T>(call: impl FnOnce() -> Result<T, Unavailable>) -> Result<T, Unavailable> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied());
        Err(Unavailable::Driver(
            text.unwrap_or("it lacks a function").into(),
        ))
    })
}

/// The driver's name for an error, or its number.
pub(super) fn name_of(error: DriverError) -> String {
    match error.error_name() {
        Ok(name) => name.to_string_lossy().into_owned(),
        Err(_) => format!("error {}", error.0 as u32),
    }
}
