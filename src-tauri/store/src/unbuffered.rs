//! Files whose bytes go from the disk straight to where they are used, past the system's page cache.
//!
//! Blocks are large, read once and then kept in memory as blocks. Reading them through the page cache costs a copy, whose time is as
//! long as a fast disk takes, and keeps every block in memory twice. What the page cache holds already comes from there.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::file;

/// What disks want offsets, lengths and addresses to be multiples of, or more; those that want more refuse.
pub(crate) const SECTOR: usize = 512;

/// A file that is read in large pieces.
#[derive(Debug)]
pub(crate) struct Unbuffered {
    file: File,
    #[cfg(target_os = "linux")]
    direct: Option<direct::Direct>,
}

impl Unbuffered {
    /// Opens a file that is there, for reading.
    pub(crate) fn open(path: &Path) -> io::Result<Unbuffered> {
        Ok(Unbuffered {
            file: File::open(path)?,
            #[cfg(target_os = "linux")]
            direct: direct::Direct::open(path),
        })
    }

    /// Fills `parts` with what follows each other in the file from `offset` on. The end of the file before that is an error.
    ///
    /// It is read at once where the system can, and past the page cache if all begins and ends on a [`SECTOR`], in the file and
    /// in memory, and less than half of it is cached.
    pub(crate) fn read_exact_at(&self, parts: &mut [&mut [u8]], offset: u64) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        if let Some(direct) = &self.direct
            && direct.read(&self.file, parts, offset)
        {
            return Ok(());
        }
        let mut at = offset;
        for part in parts {
            file::read_exact_at(&self.file, part, at)?;
            at += part.len() as u64;
        }
        Ok(())
    }
}

/// Zeroed bytes that begin on a [`SECTOR`].
pub(crate) struct Sectors {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Sectors {
    /// So many bytes.
    pub(crate) fn new(len: usize) -> Sectors {
        let bytes = vec![0u8; len + SECTOR - 1];
        let start = bytes.as_ptr().align_offset(SECTOR).min(SECTOR - 1);
        Sectors { bytes, start, len }
    }
}

impl std::ops::Deref for Sectors {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..][..self.len]
    }
}

impl std::ops::DerefMut for Sectors {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.len]
    }
}

#[cfg(target_os = "linux")]
mod direct {
    use std::fs::{File, OpenOptions};
    use std::io::IoSliceMut;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::OpenOptionsExt;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::SECTOR;

    /// The system call's number, the same on all processors; not in every version of the library.
    const CACHESTAT: libc::c_long = 451;

    /// The same file, opened to be read past the page cache.
    #[derive(Debug)]
    pub(super) struct Direct {
        pub(super) file: File,
        /// Whether a read was refused; the next ones would be.
        pub(super) is_refused: AtomicBool,
    }

    impl Direct {
        /// `None` where the file system does not have it.
        pub(super) fn open(path: &Path) -> Option<Direct> {
            let mut options = OpenOptions::new();
            options.read(true).custom_flags(libc::O_DIRECT);
            Some(Direct {
                file: options.open(path).ok()?,
                is_refused: AtomicBool::new(false),
            })
        }

        /// Whether `parts` have been filled. `buffered` is the same file.
        pub(super) fn read(&self, buffered: &File, parts: &mut [&mut [u8]], offset: u64) -> bool {
            let is_aligned = |part: &&mut [u8]| {
                part.as_ptr().addr().is_multiple_of(SECTOR) && part.len().is_multiple_of(SECTOR)
            };
            let can = !self.is_refused.load(Ordering::Relaxed)
                && offset.is_multiple_of(SECTOR as u64)
                && parts.iter().all(is_aligned);
            let len: usize = parts.iter().map(|part| part.len()).sum();
            if !can || is_mostly_cached(buffered, offset, len) {
                return false;
            }
            let mut slices: Vec<IoSliceMut<'_>> =
                parts.iter_mut().map(|part| IoSliceMut::new(part)).collect();
            match rustix::io::preadv(&self.file, &mut slices, offset) {
                // A short one met the end of the file, or a signal: the usual way finds out.
                Ok(read) => read == len,
                Err(_) => {
                    self.is_refused.store(true, Ordering::Relaxed);
                    false
                }
            }
        }
    }

    /// Whether half of a stretch or more is in the page cache; also where the system does not say, since reading is then better left
    /// to it.
    pub(super) fn is_mostly_cached(file: &File, offset: u64, len: usize) -> bool {
        cached_bytes(file, offset, len).is_none_or(|cached| 2 * cached >= len)
    }

    /// Bytes of a stretch that are in the page cache, as pages; `None` where the system does not say: before Linux 6.5, or where the
    /// call is not allowed.
    pub(super) fn cached_bytes(file: &File, offset: u64, len: usize) -> Option<usize> {
        // As the system calls take them.
        let range: [u64; 2] = [offset, len as u64];
        // Pages: cached, dirty, being written, evicted, evicted of late.
        let mut pages = [0u64; 5];
        // SAFETY: both are as large as the call's structures, and the file is open.
        let failed = unsafe {
            libc::syscall(
                CACHESTAT,
                file.as_raw_fd(),
                range.as_ptr(),
                pages.as_mut_ptr(),
                0,
            )
        };
        (failed == 0).then(|| pages[0] as usize * rustix::param::page_size())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const LEN: usize = 64 << 10;

    /// A file of some bytes, which are on disk.
    fn written(len: usize) -> (tempfile::NamedTempFile, Vec<u8>) {
        let bytes: Vec<u8> = (0..len).map(|i| (i * i / 7) as u8).collect();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&bytes).unwrap();
        file.as_file().sync_all().unwrap();
        (file, bytes)
    }

    #[test]
    fn parts_are_filled_with_the_files_bytes_however_they_lie() {
        let (file, bytes) = written(LEN + 100);
        let unbuffered = Unbuffered::open(file.path()).unwrap();
        let mut memory = Sectors::new(LEN);
        for (skipped, first, second, offset) in [
            (0, 4096, 8192, 0),
            (0, 4096, 8192, 4096),
            (0, 512, 1024, 512),
            (1, 4096, 8192, 0),
            (0, 100, 4096, 0),
            (0, 4096, 4096, 3),
            (0, 4096, 0, 0),
            (0, 4096, LEN - 8192, 4096 + 100),
        ] {
            for is_cached in [false, true] {
                forget(file.as_file());
                if is_cached {
                    std::fs::read(file.path()).unwrap();
                }
                memory.fill(0);
                let (one, two) = memory[skipped..skipped + first + second].split_at_mut(first);
                unbuffered.read_exact_at(&mut [one, two], offset).unwrap();
                let expected = &bytes[offset as usize..][..first + second];
                assert_eq!(&memory[skipped..][..first + second], expected);
                assert!(memory[skipped + first + second..].iter().all(|it| *it == 0));
            }
        }
    }

    #[test]
    fn a_file_that_is_too_short_is_an_error() {
        let (file, _) = written(8192);
        let unbuffered = Unbuffered::open(file.path()).unwrap();
        let mut memory = Sectors::new(8192);
        for offset in [4096, 8192, 1 << 20] {
            for is_cached in [false, true] {
                forget(file.as_file());
                if is_cached {
                    std::fs::read(file.path()).unwrap();
                }
                let read = unbuffered.read_exact_at(&mut [&mut memory], offset);
                assert_eq!(read.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
            }
        }
    }

    /// Makes the system forget what it has of a file.
    fn forget(file: &File) {
        #[cfg(target_os = "linux")]
        rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        #[cfg(not(target_os = "linux"))]
        let _ = file;
    }

    /// The same, of a file that the system can read past its cache and says of what is in there.
    #[cfg(target_os = "linux")]
    fn of_such(file: &tempfile::NamedTempFile) -> Option<Unbuffered> {
        let unbuffered = Unbuffered::open(file.path()).unwrap();
        let direct = unbuffered.direct.as_ref()?;
        direct::cached_bytes(&unbuffered.file, 0, LEN)?;
        forget(&unbuffered.file);
        // Some file systems take the flag and use their cache all the same.
        direct
            .read(&unbuffered.file, &mut [&mut *Sectors::new(SECTOR * 8)], 0)
            .then_some(unbuffered)
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_is_on_disk_leaves_nothing_in_the_page_cache_and_what_is_cached_comes_from_there() {
        let (file, bytes) = written(LEN);
        let Some(unbuffered) = of_such(&file) else {
            return;
        };
        let cached = || direct::cached_bytes(&unbuffered.file, 0, LEN).unwrap();
        forget(&unbuffered.file);
        assert_eq!(cached(), 0);
        let mut memory = Sectors::new(LEN);
        unbuffered.read_exact_at(&mut [&mut memory], 0).unwrap();
        assert_eq!((&*memory, cached()), (&*bytes, 0));

        // What is not on disk yet is cached.
        let (mut changed, _) = written(0);
        changed.write_all(&bytes).unwrap();
        let changed = Unbuffered::open(changed.path()).unwrap();
        memory.fill(0);
        changed.read_exact_at(&mut [&mut memory], 0).unwrap();
        assert_eq!(&*memory, &*bytes);
        let cached = direct::cached_bytes(&changed.file, 0, LEN).unwrap();
        assert_eq!(cached, LEN);
        assert!(direct::is_mostly_cached(&changed.file, 0, LEN));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_disk_that_refuses_is_read_as_usual_and_not_asked_again() {
        let (file, bytes) = written(LEN);
        let Some(mut unbuffered) = of_such(&file) else {
            return;
        };
        // A file that is open for writing alone refuses to be read.
        let direct = unbuffered.direct.as_mut().unwrap();
        let refusing = std::fs::OpenOptions::new().write(true).open(file.path());
        direct.file = refusing.unwrap();
        let mut memory = Sectors::new(LEN);
        for is_cached in [true, false] {
            forget(&unbuffered.file);
            if is_cached {
                std::fs::read(file.path()).unwrap();
            }
            memory.fill(0);
            unbuffered.read_exact_at(&mut [&mut memory], 0).unwrap();
            assert_eq!(&*memory, &*bytes);
            let direct = unbuffered.direct.as_ref().unwrap();
            let is_refused = direct.is_refused.load(std::sync::atomic::Ordering::Relaxed);
            assert_eq!(
                is_refused, !is_cached,
                "what is cached is not asked of the disk"
            );
        }
    }
}
