//! The disk under the pool files: how fast they are read, and making the system forget their pages.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::error::{Error, Result};

/// Bytes per read.
const CHUNK_BYTES: usize = 1 << 20;

/// Files below `folder` that hold blocks; the index is a database and left out.
pub(super) fn pool_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(|error| failed(&folder, &error))? {
            let path = entry.map_err(|error| failed(&folder, &error))?.path();
            if path.is_dir() {
                folders.push(path);
            } else if !is_database(&path)? {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

fn is_database(path: &Path) -> Result<bool> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.ends_with("-wal") || name.ends_with("-shm") || name.ends_with("-journal") {
        return Ok(true);
    }
    let mut head = Vec::new();
    let file = File::open(path).map_err(|error| failed(path, &error))?;
    file.take(15)
        .read_to_end(&mut head)
        .map_err(|error| failed(path, &error))?;
    Ok(head == b"SQLite format 3")
}

/// Reads every file once from end to end: bytes per second.
pub(super) fn read_speed(files: &[PathBuf]) -> Result<f64> {
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut total = 0;
    let start = Instant::now();
    for path in files {
        let mut file = File::open(path).map_err(|error| failed(path, &error))?;
        loop {
            match file
                .read(&mut buffer)
                .map_err(|error| failed(path, &error))?
            {
                0 => break,
                n => total += n,
            }
        }
    }
    Ok(total as f64 / start.elapsed().as_secs_f64().max(1e-9))
}

/// Makes the system forget the files' pages, so that the next read comes from the disk. False where it cannot be asked.
#[cfg(target_os = "linux")]
pub(super) fn drop_page_cache(files: &[PathBuf]) -> Result<bool> {
    for path in files {
        let file = File::open(path).map_err(|error| failed(path, &error))?;
        // Pages that are not on disk yet would stay.
        file.sync_all().map_err(|error| failed(path, &error))?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
            .map_err(|error| failed(path, &error.into()))?;
    }
    Ok(true)
}

/// Makes the system forget the files' pages, so that the next read comes from the disk. False where it cannot be asked.
#[cfg(not(target_os = "linux"))]
pub(super) fn drop_page_cache(_files: &[PathBuf]) -> Result<bool> {
    Ok(false)
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::Internal(format!("{}: {error}", path.display()))
}
