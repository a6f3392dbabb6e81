//! `cargo xtask kernels`: compiles `kernels/cuda/*.cu` to the PTX that is checked in beside them.
//!
//! The compiler comes from PyPI wheels of pinned versions, into the target folder; neither a driver nor an installed toolkit is
//! needed, only the C++ compiler of the system. The text that it writes depends on the sources alone, so `--check` may compare it
//! on any machine. `--check` also has every text assembled by the assembler of the oldest toolkit whose driver is supported: what
//! that refuses, the driver would.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspace::Workspace;
use crate::{Result, process};

/// The compiler and the headers that it includes.
const WHEELS: [&str; 5] = [
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cccl==13.0.85",
];
/// The assembler of CUDA 12.0, which came with driver 525 (`LEAST_DRIVER` in `kernels/src/cuda/unavailable.rs`).
const OLDEST_ASSEMBLER: [&str; 1] = ["nvidia-cuda-nvcc-cu12==12.0.76"];
/// What it assembles each text for, of those that the text may run on: Turing, Ampere twice, Ada, Hopper.
const ASSEMBLED_FOR: [u32; 5] = [75, 80, 86, 89, 90];
/// The version of PTX that the texts say they are. The compiler names its own, which older drivers refuse; what it wrote needs
/// no more than this one, of CUDA 11.1.
const PTX_VERSION: &str = "7.1";
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
    let compiler = fetched(&workspace.target.join("cuda-compiler"), &WHEELS)?.join("cu13/bin");
    let compiler = compiler.join(program("nvcc"));
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
    if is_check {
        assemble(&workspace.target, &texts)?;
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

/// The folder of wheels, fetched when they are not there or of another version.
fn fetched(folder: &Path, wheels: &[&str]) -> Result<PathBuf> {
    let (marker, wanted) = (folder.join("wheels.txt"), wheels.join("\n"));
    let inside = folder.join("nvidia");
    if fs::read_to_string(&marker).is_ok_and(|found| found == wanted) {
        return Ok(inside);
    }
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|error| error.to_string())?;
    }
    println!("fetching {}", wheels.join(", "));
    // Without dependencies: they would mix other versions in.
    process::run(
        Command::new(process::PYTHON)
            .args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"])
            .arg(folder)
            .args(wheels),
    )?;
    fs::write(&marker, wanted).map_err(|error| error.to_string())?;
    Ok(inside)
}

fn program(name: &str) -> String {
    format!("{name}{}", std::env::consts::EXE_SUFFIX)
}

/// Has every text assembled by the oldest assembler, as it is: an error where that refuses one.
fn assemble(target: &Path, texts: &Path) -> Result<()> {
    let folder = fetched(&target.join("cuda-assembler"), &OLDEST_ASSEMBLER)?;
    let ptxas = folder.join("cuda_nvcc/bin").join(program("ptxas"));
    let assembled = target.join("assembled.cubin");
    for (name, capabilities) in SOURCES {
        for (at, capability) in capabilities.iter().enumerate() {
            // A device takes the text of the largest capability that it has.
            let next = capabilities.get(at + 1).copied().unwrap_or(u32::MAX);
            for device in ASSEMBLED_FOR {
                if !(*capability..next).contains(&device) {
                    continue;
                }
                process::run(
                    Command::new(&ptxas)
                        // Whether it is accepted is the question, not how well it is scheduled.
                        .args(["-O0", &format!("-arch=sm_{device}"), "-o"])
                        .arg(&assembled)
                        .arg(texts.join(format!("{name}.{capability}.ptx"))),
                )?;
            }
            println!("{name}.{capability}.ptx: CUDA 12.0 takes it");
        }
    }
    fs::remove_file(&assembled).map_err(|error| error.to_string())
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
    let text = text.replace("\r\n", "\n");
    let (before, rest) = text
        .split_once("\n.version ")
        .ok_or_else(|| format!("{name}.{target}.ptx has no version"))?;
    let (_, after) = rest.split_once('\n').unwrap_or_default();
    Ok(format!("{before}\n.version {PTX_VERSION}\n{after}"))
}
