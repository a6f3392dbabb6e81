//! `cargo xtask kernels`: compiles `kernels/cuda/*.cu` to the PTX that is checked in beside them.
//!
//! The compiler comes from PyPI wheels of pinned versions, into the target folder; neither a driver nor an installed toolkit is
//! needed, only the C++ compiler of the system. The text that it writes depends on the sources alone, so `--check` may compare it
//! on any machine.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspace::Workspace;
use crate::{Result, process};

/// The compiler and the headers that it includes. Version 13.0 matches driver 580; later ones write PTX that this driver
/// refuses.
const WHEELS: [&str; 5] = [
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cccl==13.0.85",
];
/// Sources, and the compute capabilities that each is compiled for.
const SOURCES: [(&str, &[u32]); 23] = [
    ("clear_tokens", &[75]),
    ("key_offsets", &[75]),
    ("kv_write", &[75]),
    ("paged_attention_decode", &[75, 80]),
    ("paged_attention_prefill", &[75]),
    ("paged_attention_prefill_mma", &[80]),
    ("product_dense", &[75]),
    ("product_dense_mma", &[80]),
    ("product_q2k", &[75, 80]),
    ("product_q3k", &[75, 80]),
    ("product_q4_0", &[75, 80]),
    ("product_q4_1", &[75, 80]),
    ("product_q4k", &[75, 80]),
    ("product_q5_0", &[75, 80]),
    ("product_q5_1", &[75, 80]),
    ("product_q5k", &[75, 80]),
    ("product_q6k", &[75, 80]),
    ("product_q8_0", &[75, 80]),
    ("quantize", &[75]),
    ("rms_norm", &[75]),
    ("rope", &[75]),
    ("sample", &[75]),
    ("swiglu", &[75]),
];
/// No multiplication is joined to a sum unless the source says so.
const FLAGS: [&str; 4] = ["-ptx", "-O3", "-std=c++17", "--fmad=false"];

/// Compiles all sources; writes the texts, or only says which differ.
pub(crate) fn kernels(is_check: bool) -> Result<()> {
    let workspace = Workspace::open()?;
    let sources = workspace.root.join("kernels/cuda");
    let texts = sources.join("ptx");
    check_names(&sources)?;
    let compiler = compiler(&workspace.target.join("cuda-compiler"))?;
    let mut expected = BTreeSet::new();
    let mut wrong = Vec::new();
    for (name, targets) in SOURCES {
        for target in targets {
            let file = format!("{name}.{target}.ptx");
            let text = compile(&compiler, &sources, name, *target, &workspace.target)?;
            let path = texts.join(&file);
            let is_same = fs::read_to_string(&path).is_ok_and(|old| old == text);
            println!("{file}: {}", if is_same { "as it was" } else { "differs" });
            if !is_same && !is_check {
                fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
            }
            if !is_same {
                wrong.push(file.clone());
            }
            expected.insert(file);
        }
    }
    for file in names(&texts, "ptx")? {
        if !expected.contains(&file) {
            wrong.push(format!("{file} (of no source)"));
        }
    }
    match wrong.is_empty() || !is_check {
        true => Ok(()),
        false => Err(format!(
            "not what the sources compile to: {}; run `cargo xtask kernels` and commit",
            wrong.join(", ")
        )),
    }
}

/// Names of the files with that extension in a folder.
fn names(folder: &Path, extension: &str) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| Path::new(name).extension().is_some_and(|e| e == extension))
        .collect())
}

/// An error for a source that no target is written down for.
fn check_names(sources: &Path) -> Result<()> {
    for file in names(sources, "cu")? {
        let is_known = SOURCES.iter().any(|(name, _)| file == format!("{name}.cu"));
        if !is_known {
            return Err(format!(
                "{file} has no targets; name them in xtask/src/kernels.rs"
            ));
        }
    }
    Ok(())
}

/// The compiler, fetched when it is not there or of another version.
fn compiler(folder: &Path) -> Result<PathBuf> {
    let (marker, wanted) = (folder.join("wheels.txt"), WHEELS.join("\n"));
    if fs::read_to_string(&marker).is_ok_and(|found| found == wanted) {
        return Ok(nvcc(folder));
    }
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|error| error.to_string())?;
    }
    println!("fetching the compiler (104 MB)");
    // Without dependencies: they would mix other versions in.
    process::run(
        Command::new(process::PYTHON)
            .args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"])
            .arg(folder)
            .args(WHEELS),
    )?;
    fs::write(&marker, wanted).map_err(|error| error.to_string())?;
    Ok(nvcc(folder))
}

fn nvcc(folder: &Path) -> PathBuf {
    let name = if cfg!(windows) { "nvcc.exe" } else { "nvcc" };
    folder.join("nvidia/cu13/bin").join(name)
}

fn compile(nvcc: &Path, sources: &Path, name: &str, target: u32, out: &Path) -> Result<String> {
    let out = out.join(format!("{name}.{target}.ptx"));
    process::run(
        Command::new(nvcc)
            .current_dir(sources)
            .args(FLAGS)
            .arg(format!("-arch=compute_{target}"))
            .arg(format!("{name}.cu"))
            .arg("-o")
            .arg(&out),
    )?;
    let text = fs::read_to_string(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    fs::remove_file(&out).map_err(|error| error.to_string())?;
    // As git keeps it, also where the compiler ends lines in another way.
    Ok(text.replace("\r\n", "\n"))
}
