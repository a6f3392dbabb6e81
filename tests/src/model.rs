//! The models that tests run.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use models::tiny::{self, TinyModel};
use models::{Architecture, DigestCache, Model, Tokenizer};

/// File name of the default model.
const DEFAULT_MODEL: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// Which model a test runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// SmolLM2-135M-Instruct, the model that Reprise comes with.
    Real,
    /// Two seeded layers of the given family.
    Tiny(Architecture, u64),
}

impl Subject {
    /// The tiny model that most tests run.
    pub const TINY: Self = Self::Tiny(Architecture::Llama, 1);

    /// Puts the model file into `folder`.
    pub fn install(self, folder: &Path) {
        std::fs::create_dir_all(folder).expect("models folder");
        match self {
            Self::Real => link_or_copy(&default_model(), &folder.join(DEFAULT_MODEL)),
            Self::Tiny(architecture, seed) => {
                let path = folder.join(format!("tiny-{seed}.gguf"));
                tiny::write(&path, &TinyModel::new(architecture, seed)).expect("tiny model");
            }
        }
    }

    /// Decodes `ids` to text in one go.
    pub fn decode(self, ids: &[u32]) -> String {
        let folder = tempfile::tempdir().expect("folder");
        self.install(folder.path());
        let file = std::fs::read_dir(folder.path()).expect("folder").next();
        let path = file.expect("file").expect("file").path();
        Tokenizer::open(&path).expect("tokenizer").decode(ids)
    }

    /// Digest of its tokenizer, under which history keeps token ids.
    pub fn tokenizer(self) -> [u8; 32] {
        static REAL: OnceLock<[u8; 32]> = OnceLock::new();
        match self {
            Self::Real => *REAL.get_or_init(|| digest(&default_model())),
            Self::Tiny(..) => {
                let folder = tempfile::tempdir().expect("folder");
                self.install(folder.path());
                let file = std::fs::read_dir(folder.path())
                    .expect("folder")
                    .next()
                    .expect("file")
                    .expect("file");
                digest(&file.path())
            }
        }
    }
}

fn digest(path: &Path) -> [u8; 32] {
    let model =
        Model::load(path, kernels::physical_cores(), &DigestCache::new(None)).expect("model");
    model.tokenizer().digest()
}

/// The default model's file: `REPRISE_TEST_MODEL`, or where `cargo xtask run` keeps it.
///
/// # Panics
/// When it is in neither place.
pub fn default_model() -> PathBuf {
    let kept = || {
        Some(
            dirs::data_dir()?
                .join("reprise")
                .join("models")
                .join(DEFAULT_MODEL),
        )
    };
    let path = std::env::var_os("REPRISE_TEST_MODEL")
        .map(PathBuf::from)
        .or_else(kept)
        .unwrap_or_default();
    assert!(
        path.is_file(),
        "the default model is not at {path:?}: run `cargo xtask test`, which fetches it"
    );
    path
}

/// Creates a symbolic link if the system allows it, since the file is 98 MB. A hard link would alter the file's change
/// time, and tests that run in parallel would hash its weights again.
fn link_or_copy(from: &Path, to: &Path) {
    #[cfg(unix)]
    let linked = std::os::unix::fs::symlink(from, to);
    #[cfg(not(unix))]
    let linked = std::fs::hard_link(from, to);
    if linked.is_err() {
        std::fs::copy(from, to).expect("copy of the default model");
    }
}
