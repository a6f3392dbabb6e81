//! Detects whether a file has changed since it was last seen, without reading all of it.
//!
//! Size and modification time are not enough: archives unpack with one fixed time, and two fine-tunes of one model have
//! the same size. So a stamp also has the change time and the file index, which a program cannot set, and a sample of
//! the content for systems that have neither.

use std::fs::{File, Metadata};
use std::io::{Read, Result, Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Bytes that are read at each sampled position.
pub(crate) const PAGE: u64 = 4096;
/// Number of sampled positions spread over the file, including its first and last page.
const SPREAD: u64 = 32;
/// A file changed more recently than this may change again without a new time: FAT stores times in steps of two
/// seconds.
const SETTLED: Duration = Duration::from_secs(3);

/// The file attributes that the operating system reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attributes {
    size: u64,
    /// Nanoseconds since 1970; any program can set it.
    modified: u128,
    /// Last change of content, times, name or links by the system's clock: ctime in nanoseconds since 1970 on Unix, the
    /// file time on Windows.
    changed: i128,
    /// Serial number of the volume on Windows; 0 on Unix, where device numbers do not outlive a restart.
    volume: u64,
    /// Inode on Unix, file index on Windows.
    index: u64,
}

/// The attributes of a file and a sample of its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    pub(crate) attributes: Attributes,
    /// BLAKE3 of the sampled pages, in lower-case hexadecimal.
    pub(crate) sample: String,
}

impl Attributes {
    pub(crate) fn of(file: &File) -> Result<Attributes> {
        let metadata = file.metadata()?;
        let modified = metadata
            .modified()?
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_nanos());
        let (changed, volume, index) = of_system(file, &metadata)?;
        Ok(Attributes {
            size: metadata.len(),
            modified,
            changed,
            volume,
            index,
        })
    }

    /// The attributes of the file that `path` names now.
    pub(crate) fn at(path: &Path) -> Result<Attributes> {
        Attributes::of(&File::open(path)?)
    }

    /// Whether the times are old enough that another change would alter them.
    pub(crate) fn are_settled(&self, now: SystemTime) -> bool {
        let now = now.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        let last = self.modified.max(unix_nanoseconds(self.changed));
        last + SETTLED.as_nanos() < now
    }
}

impl Stamp {
    /// Takes a file's stamp. `pages` are positions to sample in addition to the evenly spread ones.
    pub(crate) fn of(mut file: &File, pages: &[u64]) -> Result<Stamp> {
        let attributes = Attributes::of(file)?;
        let last = attributes.size.saturating_sub(PAGE);
        let spread = (0..SPREAD).map(|i| (u128::from(last) * u128::from(i) / 31) as u64);
        let mut positions: Vec<u64> = spread
            .chain(pages.iter().map(|at| *at.min(&last)))
            .collect();
        positions.sort_unstable();
        positions.dedup();
        let mut hasher = blake3::Hasher::new();
        for at in positions {
            file.seek(SeekFrom::Start(at))?;
            hasher.update_reader(file.take(PAGE))?;
        }
        Ok(Stamp {
            attributes,
            sample: hasher.finalize().to_hex().to_string(),
        })
    }
}

#[cfg(unix)]
fn of_system(_: &File, metadata: &Metadata) -> Result<(i128, u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let changed = i128::from(metadata.ctime()) * 1_000_000_000 + i128::from(metadata.ctime_nsec());
    Ok((changed, 0, metadata.ino()))
}

#[cfg(windows)]
fn of_system(file: &File, _: &Metadata) -> Result<(i128, u64, u64)> {
    use std::io::Error;
    use std::os::windows::io::AsRawHandle;
    use windows_sys::Win32::Storage::FileSystem::{
        BY_HANDLE_FILE_INFORMATION, FILE_BASIC_INFO, FileBasicInfo, GetFileInformationByHandle,
        GetFileInformationByHandleEx,
    };
    let handle = file.as_raw_handle();
    let mut basic = FILE_BASIC_INFO::default();
    let size = size_of::<FILE_BASIC_INFO>() as u32;
    // SAFETY: the handle is open as long as `file` is borrowed, and `basic` is `size` bytes that the call fills.
    let done = unsafe {
        GetFileInformationByHandleEx(handle, FileBasicInfo, (&raw mut basic).cast(), size)
    };
    if done == 0 {
        return Err(Error::last_os_error());
    }
    let mut numbers = BY_HANDLE_FILE_INFORMATION::default();
    // SAFETY: as above.
    if unsafe { GetFileInformationByHandle(handle, &raw mut numbers) } == 0 {
        return Err(Error::last_os_error());
    }
    let index = u64::from(numbers.nFileIndexHigh) << 32 | u64::from(numbers.nFileIndexLow);
    Ok((
        i128::from(basic.ChangeTime),
        u64::from(numbers.dwVolumeSerialNumber),
        index,
    ))
}

/// Neither change time nor file index: the sample has to detect a change.
#[cfg(not(any(unix, windows)))]
fn of_system(_: &File, _: &Metadata) -> Result<(i128, u64, u64)> {
    Ok((0, 0, 0))
}

/// A change time as nanoseconds since 1970; 0 for earlier times.
fn unix_nanoseconds(changed: i128) -> u128 {
    // Windows counts steps of 100 ns since 1601.
    let nanoseconds = match cfg!(windows) {
        true => changed * 100 - 11_644_473_600_000_000_000,
        false => changed,
    };
    u128::try_from(nanoseconds).unwrap_or(0)
}
