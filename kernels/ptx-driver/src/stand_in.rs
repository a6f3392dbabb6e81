//! Letting a program find this library where it looks for the driver.

use std::ffi::c_uint;
use std::io;
use std::path::{Path, PathBuf};

use crate::stream::Kind;

/// The library's file, built with the tests that depend on it.
///
/// # Errors
/// When the running program is not one that was built with it.
pub fn library() -> io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let folder = program.parent().unwrap_or(Path::new("."));
    let name = format!(
        "{}ptx_driver{}",
        std::env::consts::DLL_PREFIX,
        std::env::consts::DLL_SUFFIX
    );
    [folder.join("deps").join(&name), folder.join(&name)]
        .into_iter()
        .find(|path| path.exists())
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, name))
}

/// Puts the library into a folder under the driver's name. A program whose library path begins with the folder takes it for the
/// driver.
///
/// # Errors
/// When it is not there or cannot be copied.
pub fn install(folder: &Path) -> io::Result<()> {
    std::fs::copy(library()?, folder.join("libcuda.so.1")).map(drop)
}

/// Makes this very program take the library for the driver, for the rest of its life; or, where `REPRISE_TEST_GPU` is set, leaves
/// it to the real one, so that the same tests run on a GPU.
///
/// # Errors
/// When it is not there.
pub fn load() -> io::Result<()> {
    if std::env::var_os("REPRISE_TEST_GPU").is_some() {
        return Ok(());
    }
    // Who opens a library by a name that one in memory has gets that one.
    std::mem::forget(open()?);
    Ok(())
}

/// As `load`, and devices that this thread opens from now on run what is of this kind as early as they may, and the rest as late
/// as they may. On a real device it is as it is.
///
/// # Errors
/// As `load`.
fn run_ahead(kind: Kind) -> io::Result<()> {
    load()?;
    if std::env::var_os("REPRISE_TEST_GPU").is_none() {
        let library = open()?;
        // SAFETY: the library has it, with this type.
        let run_ahead = unsafe { library.get::<extern "C" fn(c_uint)>(b"ptx_driver_run_ahead") };
        run_ahead.map_err(io::Error::other)?(c_uint::from(kind == Kind::Copies));
    }
    Ok(())
}

fn open() -> io::Result<libloading::Library> {
    // SAFETY: it has no initialisers.
    unsafe { libloading::Library::new(library()?) }.map_err(io::Error::other)
}

/// What `open` gives where kernels run as early as they may and copies as late, and where it is the other way round.
///
/// # Panics
/// When there is no stand-in, or `open` panics.
pub fn in_both_orders<T: Send>(open: impl Fn() -> T + Sync) -> [T; 2] {
    [Kind::Kernels, Kind::Copies].map(|ahead| {
        let open = || {
            run_ahead(ahead).expect("the stand-in for the driver");
            open()
        };
        // On a thread of its own, since what runs ahead is a thread's choice.
        std::thread::scope(|scope| scope.spawn(open).join()).expect("it opens")
    })
}
