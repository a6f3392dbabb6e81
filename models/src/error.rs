//! The one error type of the crate.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Errors between a model file and its logits. Each kind of unusable file has a variant and a code of its own, so that
/// the message can say what to do next.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no model file at this path.
    #[error("{}", missing(path, *is_link))]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
        /// The path is a symbolic link whose target does not exist.
        is_link: bool,
    },
    /// The file could not be read.
    #[error("{}", unreadable(path, source))]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The path is a folder, or another thing that is not a regular file.
    #[error("{} is not a file but a {what}; choose a GGUF file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// Kind of the thing at the path.
        what: &'static str,
    },
    /// The file is empty.
    #[error("{} is empty; fetch it again", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The file is not a GGUF file.
    #[error("{} is not a GGUF file but {what}; choose a GGUF file of the model", path.display())]
    NotGguf {
        /// The file.
        path: PathBuf,
        /// The file type that its first bytes suggest, with its article.
        what: &'static str,
    },
    /// The file is truncated.
    #[error("{} is incomplete: {reason}; wait for its download to end, or fetch it again", path.display())]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// Where the file ends.
        reason: String,
    },
    /// One file of a model that was split into several.
    #[error(
        "{} is part {number} of {count} of a model that was split; join the parts into one file with `llama-gguf-split --merge`, or fetch a model that is one file",
        path.display()
    )]
    Part {
        /// The file.
        path: PathBuf,
        /// Number of this part, counted from 1.
        number: u64,
        /// Number of parts.
        count: u64,
    },
    /// A multimodal projector (vision or audio) without its language model.
    #[error(
        "{} is a projector, which turns pictures or sound into what a model reads, and no model by itself; choose the model that it came with",
        path.display()
    )]
    Projector {
        /// The file.
        path: PathBuf,
    },
    /// A draft model for speculative decoding, which cannot run alone.
    #[error(
        "{} is a draft model ({name}), which only guesses ahead of another model; choose the model that it is meant for",
        path.display()
    )]
    Draft {
        /// The file.
        path: PathBuf,
        /// Its architecture.
        name: String,
    },
    /// An adapter (LoRA) without its base model.
    #[error(
        "{} is an adapter (LoRA), which changes a model and is none by itself; choose a model that has it merged in",
        path.display()
    )]
    Adapter {
        /// The file.
        path: PathBuf,
    },
    /// An architecture that Reprise does not support.
    #[error(
        "{} cannot be used: its architecture is {name:?}; supported are llama, qwen2 and qwen3",
        path.display()
    )]
    Architecture {
        /// The file.
        path: PathBuf,
        /// The architecture's name in the file.
        name: String,
    },
    /// The file is broken.
    #[error("{} is not a usable model file: {reason}", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The file is sound, but holds something Reprise does not run.
    #[error("{} cannot be used: {reason}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What is not supported, by name.
        reason: String,
    },
    /// The file was modified while it was read.
    #[error(
        "{} changed while it was being loaded; wait until nothing writes it, then load it again",
        path.display()
    )]
    Changing {
        /// The file.
        path: PathBuf,
    },
    /// The chat template cannot render the conversation.
    #[error("the model's chat template cannot render this conversation: {0}")]
    Template(String),
    /// Tokenizing was interrupted.
    #[error("tokenizing was stopped")]
    Interrupted,
    /// The caller's tokens, offset, pool and block table do not fit together.
    #[error("invalid forward call: {0}")]
    Input(String),
    /// A tensor operation failed.
    #[error("tensor operation failed: {0}")]
    Tensor(#[from] candle_core::Error),
    /// A kernel failed.
    #[error(transparent)]
    Kernel(#[from] kernels::Error),
}

impl Error {
    /// Stable error code that callers branch on.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "model_file_missing",
            Self::Read { .. } => "model_unreadable",
            Self::NotAFile { .. } => "model_not_a_file",
            Self::Empty { .. } => "model_empty",
            Self::NotGguf { .. } => "model_not_gguf",
            Self::Incomplete { .. } => "model_incomplete",
            Self::Part { .. } => "model_part",
            Self::Projector { .. } => "model_projector",
            Self::Draft { .. } => "model_draft",
            Self::Adapter { .. } => "model_adapter",
            Self::Architecture { .. } | Self::Unsupported { .. } => "model_unsupported",
            Self::Broken { .. } => "model_broken",
            Self::Changing { .. } => "model_changing",
            Self::Template(_) => "template_failed",
            Self::Interrupted => "stopped",
            Self::Input(_) | Self::Tensor(_) | Self::Kernel(_) => "internal",
        }
    }

    /// Short description of the file for a list of models.
    pub fn label(&self) -> String {
        match self {
            Self::Missing { is_link: true, .. } => "link to a file that is gone".into(),
            Self::Missing { .. } => "file is gone".into(),
            Self::Read { .. } => "cannot be read".into(),
            Self::NotAFile { what, .. } => (*what).into(),
            Self::Empty { .. } => "empty file".into(),
            Self::NotGguf { what, .. } => format!("not GGUF but {what}"),
            Self::Incomplete { .. } => "incomplete download".into(),
            Self::Part { number, count, .. } => format!("part {number} of {count}"),
            Self::Projector { .. } => "projector, no model".into(),
            Self::Draft { .. } => "draft model".into(),
            Self::Adapter { .. } => "adapter, no model".into(),
            Self::Architecture { name, .. } => format!("{name} is not supported"),
            Self::Broken { .. } => "damaged file".into(),
            Self::Unsupported { reason, .. } => reason.clone(),
            Self::Changing { .. } => "being written".into(),
            other => other.to_string(),
        }
    }

    /// An I/O error at a path.
    pub(crate) fn of_path(path: &Path, source: std::io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => Self::Missing {
                is_link: path.is_symlink(),
                path,
            },
            _ => Self::Read { path, source },
        }
    }
}

fn missing(path: &Path, is_link: bool) -> String {
    match is_link {
        false => format!("there is no model file at {}", path.display()),
        true => format!(
            "{} is a link to a file that is not there any more",
            path.display()
        ),
    }
}

fn unreadable(path: &Path, source: &std::io::Error) -> String {
    let path = path.display();
    match source.kind() {
        ErrorKind::PermissionDenied => {
            format!("{path} may not be read by you; change its permissions, or copy it")
        }
        _ => format!("cannot read {path}: {source}; check the disk that it is on"),
    }
}

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;
