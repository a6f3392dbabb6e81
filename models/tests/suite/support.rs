//! What the tests share: the default model, tiny models, a pool to run them in.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use kernels::{BLOCK_TOKENS, KvFormat, KvPool, Team};
use models::tiny::{self, TinyModel};
use models::{DigestCache, LoadOptions, Model};

/// The default model file: `REPRISE_TEST_MODEL`, else where `cargo xtask` puts it.
pub fn default_model_path() -> PathBuf {
    let path = match std::env::var_os("REPRISE_TEST_MODEL") {
        Some(path) => PathBuf::from(path),
        None => dirs::data_dir()
            .expect("a data folder")
            .join("reprise/models/SmolLM2-135M-Instruct.Q4_1.gguf"),
    };
    assert!(
        path.is_file(),
        "the default model is not at {}: run `cargo xtask test`, which fetches it, or set REPRISE_TEST_MODEL",
        path.display()
    );
    path
}

/// The default model, loaded once for all tests.
pub fn default_model() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| load(&default_model_path()))
}

pub fn load(path: &Path) -> Model {
    load_on(path, Team::new(kernels::physical_cores()))
}

pub fn load_on(path: &Path, team: Team) -> Model {
    load_in(path, team, KvFormat::F16)
}

/// What is compared with other programs keeps keys and values in f16 as they do; laws hold in any format.
pub fn load_in(path: &Path, team: Team, kv: KvFormat) -> Model {
    let options = LoadOptions {
        kv,
        ..LoadOptions::default()
    };
    Model::load_with(path, team, &DigestCache::new(None), options).expect("the model loads")
}

/// A tiny model and the folder that holds its file.
pub fn tiny(model: &TinyModel) -> (tempfile::TempDir, PathBuf, Model) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("tiny.gguf");
    tiny::write(&path, model).expect("the tiny model is written");
    let model = load(&path);
    (dir, path, model)
}

/// A pool and a table for one sequence; the slots stand in reverse, so that a table is needed.
pub fn sequence(model: &Model, num_tokens: usize) -> (KvPool, Vec<u32>) {
    let blocks = num_tokens.div_ceil(BLOCK_TOKENS);
    let pool = KvPool::reserved(model.kv_layout(), blocks + 1).expect("a pool");
    (pool, (1..=blocks as u32).rev().collect())
}

/// Seeded ids below `limit`.
pub fn tokens(count: usize, limit: usize, seed: u64) -> Vec<u32> {
    use rand::{Rng, SeedableRng};
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    (0..count)
        .map(|_| rng.random_range(0..limit as u32))
        .collect()
}

/// A file of the golden folder.
pub fn fixture(name: &str) -> String {
    any_fixture(&format!("tokens/{name}"))
}

/// A file of `tests/fixtures`.
pub fn any_fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/fixtures")
        .join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
