//! A GGUF file, mapped: metadata by name, tensors as checked byte ranges.

use std::fs::File;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use candle_core::Device;
use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::{Content, Value};
use memmap2::Mmap;

use crate::error::{Error, Result};
use crate::foreign;
use crate::header::{self, Flaw};
use crate::stamp::PAGE;

/// Bytes at the beginning of a file that are read to recognize its type.
const HEAD_BYTES: usize = 512;

/// An open model file. Nothing is copied until a tensor is used.
pub(crate) struct GgufFile {
    path: PathBuf,
    map: Mmap,
    /// The mapped file, even if the path now names another one.
    file: File,
    content: Content,
}

/// One tensor's bytes inside the map, proven to lie inside the file and to fit its shape.
pub(crate) struct TensorBytes<'a> {
    pub(crate) dtype: GgmlDType,
    /// Row-major, the last one contiguous.
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: &'a [u8],
}

impl GgufFile {
    pub(crate) fn open(path: &Path) -> Result<GgufFile> {
        let read = |source| Error::of_path(path, source);
        let metadata = std::fs::metadata(path).map_err(read)?;
        if !metadata.is_file() {
            // Checked before opening, since opening a pipe would block.
            let what = match metadata.is_dir() {
                true => "folder",
                false => "device or a pipe",
            };
            return Err(Error::NotAFile {
                path: path.to_path_buf(),
                what,
            });
        }
        let file = File::open(path).map_err(read)?;
        if file.metadata().map_err(read)?.len() == 0 {
            return Err(Error::Empty {
                path: path.to_path_buf(),
            });
        }
        // SAFETY: the map is read-only and private to this value; model files are not written while the application
        // uses them (a file that another program truncates meanwhile would end this process, as with any mapped file).
        let map = unsafe { Mmap::map(&file) }.map_err(read)?;
        check_beginning(path, &map)?;
        let header = header::check(&map).map_err(|flaw| match flaw {
            Flaw::Ends(reason) => incomplete(path, reason),
            Flaw::Nonsense(reason) => broken(path, reason),
        })?;
        let content = Content::read(&mut Cursor::new(&map[..header]))
            .map_err(|error| broken(path, first_line(&error.to_string())))?;
        let file = GgufFile {
            path: path.to_path_buf(),
            map,
            file,
            content,
        };
        file.check_kind()?;
        file.check_tensors()?;
        Ok(file)
    }

    /// Refuses GGUF files that are not a whole model: parts, projectors, draft models and adapters.
    fn check_kind(&self) -> Result<()> {
        let path = || self.path.clone();
        // The file counts parts from 0, its name from 1.
        let count = self.number("split.count")?.unwrap_or(1);
        if count > 1 {
            let number = self.number("split.no")?.unwrap_or(0).saturating_add(1);
            return Err(Error::Part {
                path: path(),
                number,
                count,
            });
        }
        let kind = self.text("general.type")?;
        let architecture = self.text("general.architecture")?;
        match (kind, architecture) {
            (Some("adapter"), _) => Err(Error::Adapter { path: path() }),
            (Some("mmproj"), _) | (_, Some("clip" | "mmproj")) => {
                Err(Error::Projector { path: path() })
            }
            (_, Some(name)) if is_draft(name) => Err(Error::Draft {
                path: path(),
                name: name.into(),
            }),
            _ => Ok(()),
        }
    }

    /// The mapped file, even if its path now names another one.
    pub(crate) fn opened(&self) -> &File {
        &self.file
    }

    /// One sampled position in each tensor, at a varying place, so that a change of any tensor can be noticed.
    pub(crate) fn pages(&self) -> Vec<u64> {
        /// Bounds the sample, whatever number of tensors the file claims.
        const MOST: usize = 1024;
        let mut tensors: Vec<_> = self.content.tensor_infos.values().collect();
        tensors.sort_by_key(|info| info.offset);
        let step = tensors.len().div_ceil(MOST).max(1);
        let pages = tensors.iter().step_by(step).enumerate().map(|(i, info)| {
            let dtype = info.ggml_dtype;
            let bytes = (info.shape.elem_count() / dtype.block_size() * dtype.type_size()) as u64;
            // The golden ratio spreads the positions evenly.
            let part = u128::from((i as u32).wrapping_mul(0x9e37_79b9));
            let inside = (u128::from(bytes.saturating_sub(PAGE)) * part) >> 32;
            self.content.tensor_data_offset + info.offset + inside as u64
        });
        pages.collect()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file_bytes(&self) -> u64 {
        self.map.len() as u64
    }

    pub(crate) fn broken(&self, reason: impl Into<String>) -> Error {
        broken(&self.path, reason.into())
    }

    pub(crate) fn unsupported(&self, reason: impl Into<String>) -> Error {
        Error::Unsupported {
            path: self.path.clone(),
            reason: reason.into(),
        }
    }

    fn check_tensors(&self) -> Result<()> {
        let mut names: Vec<&String> = self.content.tensor_infos.keys().collect();
        names.sort();
        names
            .into_iter()
            .try_for_each(|name| self.tensor(name).map(|_| ()))
    }

    pub(crate) fn has_tensor(&self, name: &str) -> bool {
        self.content.tensor_infos.contains_key(name)
    }

    pub(crate) fn tensor(&self, name: &str) -> Result<TensorBytes<'_>> {
        let info = self
            .content
            .tensor_infos
            .get(name)
            .ok_or_else(|| self.broken(format!("the tensor {name} is missing")))?;
        let shape = info.shape.dims().to_vec();
        let elements = shape.iter().try_fold(1usize, |all, &n| all.checked_mul(n));
        let (block, size) = (info.ggml_dtype.block_size(), info.ggml_dtype.type_size());
        let length = elements
            .filter(|&n| n > 0 && n % block == 0)
            .and_then(|n| (n / block).checked_mul(size));
        let length = length.ok_or_else(|| {
            self.broken(format!(
                "the tensor {name} has an impossible shape {shape:?}"
            ))
        })?;
        if shape.last().is_some_and(|columns| columns % block != 0) {
            return Err(self.broken(format!(
                "rows of the tensor {name} are no multiple of {block} elements"
            )));
        }
        let start = usize::try_from(self.content.tensor_data_offset.saturating_add(info.offset))
            .unwrap_or(usize::MAX);
        let bytes = start
            .checked_add(length)
            .and_then(|end| self.map.get(start..end))
            .ok_or_else(|| {
                let there = self.map.len() >> 20;
                incomplete(
                    &self.path,
                    format!("it ends after {there} MiB, before the end of the tensor {name}"),
                )
            })?;
        Ok(TensorBytes {
            dtype: info.ggml_dtype,
            shape,
            bytes,
        })
    }

    /// A tensor of exactly this shape, as it is in the file.
    pub(crate) fn tensor_of(&self, name: &str, shape: &[usize]) -> Result<TensorBytes<'_>> {
        let tensor = self.tensor(name)?;
        if tensor.shape != shape {
            return Err(self.broken(format!(
                "the tensor {name} has shape {:?}, not {shape:?}",
                tensor.shape
            )));
        }
        Ok(tensor)
    }

    /// Lets the system take back the memory of a tensor's bytes, which are not needed soon. Repacked weights would
    /// otherwise stand beside those of the file.
    pub(crate) fn forget(&self, tensor: &TensorBytes<'_>) {
        #[cfg(unix)]
        {
            let offset = tensor.bytes.as_ptr() as usize - self.map.as_ptr() as usize;
            // SAFETY: the map is read-only and of a file: pages let go are read from it again when they are used.
            let advised = unsafe {
                self.map.unchecked_advise_range(
                    memmap2::UncheckedAdvice::DontNeed,
                    offset,
                    tensor.bytes.len(),
                )
            };
            if let Err(error) = advised {
                tracing::debug!(%error, "the mapped weights stay in memory until the model is loaded");
            }
        }
        #[cfg(not(unix))]
        let _ = tensor;
    }

    /// A vector as f32.
    pub(crate) fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>> {
        let tensor = self.tensor_of(name, &[len])?;
        let tensor = candle_core::quantized::ggml_file::qtensor_from_ggml(
            tensor.dtype,
            tensor.bytes,
            vec![len],
            &Device::Cpu,
        )?;
        Ok(tensor.dequantize(&Device::Cpu)?.to_vec1()?)
    }

    pub(crate) fn tensors(&self) -> impl Iterator<Item = (&str, GgmlDType, usize)> {
        self.content
            .tensor_infos
            .iter()
            .map(|(name, info)| (name.as_str(), info.ggml_dtype, info.shape.elem_count()))
    }

    /// Names, formats and shapes of all tensors.
    pub(crate) fn shapes(&self) -> impl Iterator<Item = (&str, GgmlDType, &[usize])> {
        let infos = self.content.tensor_infos.iter();
        infos.map(|(name, info)| (name.as_str(), info.ggml_dtype, info.shape.dims()))
    }

    fn value(&self, key: &str) -> Option<&Value> {
        self.content.metadata.get(key)
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<&str>> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.broken(format!("{key} is not text"))),
        }
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<u64>> {
        match self.value(key) {
            None => Ok(None),
            Some(value) => match integer(value) {
                Some(number) => Ok(Some(number)),
                None => Err(self.broken(format!("{key} is not a whole number"))),
            },
        }
    }

    pub(crate) fn float(&self, key: &str) -> Result<Option<f32>> {
        let float = match self.value(key) {
            None => return Ok(None),
            Some(Value::F32(v)) => Some(*v),
            Some(Value::F64(v)) => Some(*v as f32),
            Some(_) => None,
        };
        match float.filter(|v| v.is_finite()) {
            Some(v) => Ok(Some(v)),
            None => Err(self.broken(format!("{key} is not a finite number"))),
        }
    }

    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Bool(v)) => Ok(Some(*v)),
            Some(_) => Err(self.broken(format!("{key} is not true or false"))),
        }
    }

    pub(crate) fn texts(&self, key: &str) -> Result<Option<Vec<String>>> {
        let wrong = || self.broken(format!("{key} is not a list of texts"));
        match self.value(key) {
            None => Ok(None),
            Some(Value::Array(values)) => values
                .iter()
                .map(|value| match value {
                    Value::String(text) => Ok(text.clone()),
                    _ => Err(wrong()),
                })
                .collect::<Result<Vec<_>>>()
                .map(Some),
            Some(_) => Err(wrong()),
        }
    }

    /// One element of an array of strings, if it exists.
    pub(crate) fn text_at(&self, key: &str, index: usize) -> Option<&str> {
        match self.value(key)? {
            Value::Array(values) => match values.get(index)? {
                Value::String(text) => Some(text),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether the vocabulary has a special token of this name.
    pub(crate) fn has_special(&self, name: &str) -> bool {
        let list = |key: &str| match self.value(key) {
            Some(Value::Array(values)) => values.as_slice(),
            _ => &[],
        };
        let is_name = |value: &Value| matches!(value, Value::String(text) if text == name);
        let at = list("tokenizer.ggml.tokens").iter().position(is_name);
        let kind = at.and_then(|at| integer(list("tokenizer.ggml.token_type").get(at)?));
        kind.is_some_and(|kind| !matches!(kind, 1 | 6))
    }

    pub(crate) fn numbers(&self, key: &str) -> Result<Option<Vec<u32>>> {
        let wrong = || self.broken(format!("{key} is not a list of whole numbers"));
        match self.value(key) {
            None => Ok(None),
            Some(Value::Array(values)) => values
                .iter()
                .map(|value| {
                    integer(value)
                        .and_then(|v| u32::try_from(v).ok())
                        .ok_or_else(wrong)
                })
                .collect::<Result<Vec<_>>>()
                .map(Some),
            Some(_) => Err(wrong()),
        }
    }
}

fn integer(value: &Value) -> Option<u64> {
    match value {
        Value::U8(v) => Some(u64::from(*v)),
        Value::U16(v) => Some(u64::from(*v)),
        Value::U32(v) => Some(u64::from(*v)),
        Value::U64(v) => Some(*v),
        Value::I8(v) => u64::try_from(*v).ok(),
        Value::I16(v) => u64::try_from(*v).ok(),
        Value::I32(v) => u64::try_from(*v).ok(),
        Value::I64(v) => u64::try_from(*v).ok(),
        _ => None,
    }
}

/// Refuses a file whose first bytes are those of another file type, or of an unfinished download.
fn check_beginning(path: &Path, bytes: &[u8]) -> Result<()> {
    let head = &bytes[..bytes.len().min(HEAD_BYTES)];
    if head.iter().all(|byte| *byte == 0) {
        let reason = "it begins with zeros, as a file does that is still being fetched";
        return Err(incomplete(path, reason.into()));
    }
    match (foreign::looks_like(head), foreign::part_by_name(path)) {
        (None, _) => Ok(()),
        // A file cut into byte ranges: only the first part begins with the magic number.
        (Some("something else"), Some((number, count))) => Err(Error::Part {
            path: path.to_path_buf(),
            number,
            count,
        }),
        (Some(what), _) => Err(Error::NotGguf {
            path: path.to_path_buf(),
            what,
        }),
    }
}

/// Architectures of draft models.
fn is_draft(architecture: &str) -> bool {
    let name = architecture.to_lowercase();
    ["eagle", "medusa", "draft", "dflash", "mtp"]
        .iter()
        .any(|part| name.contains(part))
}

fn broken(path: &Path, reason: String) -> Error {
    Error::Broken {
        path: path.to_path_buf(),
        reason,
    }
}

/// The error for a truncated file: `Part` if its name is that of a part, else `Incomplete`.
fn incomplete(path: &Path, reason: String) -> Error {
    let path = path.to_path_buf();
    match foreign::part_by_name(&path) {
        Some((number, count)) => Error::Part {
            path,
            number,
            count,
        },
        None => Error::Incomplete { path, reason },
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_string()
}
