//! A GGUF file, mapped: metadata by name, tensors as checked byte ranges.

use std::fs::File;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use candle_core::Device;
use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::{Content, Value};
use memmap2::Mmap;

use crate::error::{Error, Result};
use crate::header;

/// An open model file. Nothing is copied until a tensor is used.
pub(crate) struct GgufFile {
    path: PathBuf,
    map: Mmap,
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
        let read = |source: std::io::Error| match source.kind() {
            std::io::ErrorKind::NotFound => Error::Missing {
                path: path.to_path_buf(),
            },
            _ => Error::Read {
                path: path.to_path_buf(),
                source,
            },
        };
        let file = File::open(path).map_err(read)?;
        if !file.metadata().map_err(read)?.is_file() {
            return Err(Error::Broken {
                path: path.to_path_buf(),
                reason: "it is not a file".into(),
            });
        }
        if file.metadata().map_err(read)?.len() == 0 {
            return Err(Error::Broken {
                path: path.to_path_buf(),
                reason: "it is empty".into(),
            });
        }
        // SAFETY: the map is read-only and private to this value; model files are not written while the application
        // uses them (a file that another program truncates meanwhile would end this process, as with any mapped file).
        let map = unsafe { Mmap::map(&file) }.map_err(read)?;
        let broken = |reason: String| Error::Broken {
            path: path.to_path_buf(),
            reason,
        };
        let header = header::check(&map).map_err(broken)?;
        let content = Content::read(&mut Cursor::new(&map[..header]))
            .map_err(|error| broken(first_line(&error.to_string())))?;
        let file = GgufFile {
            path: path.to_path_buf(),
            map,
            content,
        };
        file.check_tensors()?;
        Ok(file)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file_bytes(&self) -> u64 {
        self.map.len() as u64
    }

    pub(crate) fn broken(&self, reason: impl Into<String>) -> Error {
        Error::Broken {
            path: self.path.clone(),
            reason: reason.into(),
        }
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
                self.broken(format!(
                    "it ends before the end of the tensor {name} (a partial download?)"
                ))
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

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_string()
}
