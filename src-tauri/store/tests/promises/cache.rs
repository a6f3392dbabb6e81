//! A block store in a folder of its own, and blocks whose bytes follow from their ids.

use std::path::{Path, PathBuf};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use store::{Block, BlockStore, Budget, Fingerprint, Seal, SlotFormat};

use crate::privacy::seal_of;

/// Two layers; slabs of four tiles, of 32 bytes a token for the keys and 16 for the values.
pub const FORMAT: SlotFormat = SlotFormat {
    block_tokens: 64,
    tile_tokens: 16,
    num_layers: 2,
    key_slab_bytes: 64 * 32,
    value_slab_bytes: 64 * 16,
};
/// Where each slab begins in a payload, its bytes and those of a tile.
pub const SLABS: [(usize, usize, usize); 4] = [
    (0, 2048, 512),
    (2048, 1024, 256),
    (3072, 2048, 512),
    (5120, 1024, 256),
];
/// 112 bytes, 64 token ids, 4 slab checksums and the header's own.
pub const HEADER_BYTES: u64 = 112 + 64 * 4 + 4 * 8 + 8;
pub const BYTES_PER_TOKEN: u64 = 2 * (32 + 16);
/// Magic, version, salt, the rest of the description, 4 slab tags and the header's own.
pub const SEALED_HEADER_BYTES: u64 = 12 + 32 + (100 + 64 * 4) + 4 * 16 + 16;
/// A page for the header, and two for the payload of 6144 bytes.
pub const SLOT_BYTES: u64 = 3 * 4096;
pub const ONE: Fingerprint = Fingerprint([1; 32]);
pub const TWO: Fingerprint = Fingerprint([2; 32]);
pub const PLENTY: u64 = 1 << 30;

pub struct Cache {
    folder: tempfile::TempDir,
    pub seal: Option<Seal>,
    pub store: Option<BlockStore>,
}

impl Cache {
    pub fn new(budget_bytes: u64) -> Cache {
        Self::under(None, budget_bytes)
    }

    /// A store whose blocks are encrypted.
    pub fn sealed(budget_bytes: u64) -> Cache {
        Self::under(
            Some(seal_of(tempfile::tempdir().unwrap().path())),
            budget_bytes,
        )
    }

    fn under(seal: Option<Seal>, budget_bytes: u64) -> Cache {
        let mut cache = Cache {
            folder: tempfile::tempdir().unwrap(),
            seal,
            store: None,
        };
        cache.reopen(budget_bytes);
        assert!(cache.store().open_pool(&ONE, FORMAT, "one"));
        cache
    }

    pub fn dir(&self) -> PathBuf {
        self.folder.path().join("kv")
    }

    pub fn store(&mut self) -> &mut BlockStore {
        self.store.as_mut().unwrap()
    }

    /// Opens the store again, without its pools.
    pub fn reopen(&mut self, budget_bytes: u64) {
        self.store = None;
        let (budget, seal) = (Budget::Bytes(budget_bytes), self.seal.clone());
        self.store = Some(BlockStore::open_under(&self.dir(), budget, seal));
    }

    pub fn put(&mut self, fingerprint: &Fingerprint, block: &Block) -> Option<u64> {
        self.store().put(fingerprint, block, &payload(block))
    }

    pub fn put_all(&mut self, fingerprint: &Fingerprint, blocks: &[Block]) {
        let batch: Vec<_> = blocks
            .iter()
            .map(|block| (block.clone(), payload(block)))
            .collect();
        assert!(
            self.store()
                .put_many(fingerprint, &batch)
                .iter()
                .all(Option::is_some)
        );
    }

    /// Whether the store has the block; panics if it hands out wrong bytes.
    pub fn has(&mut self, fingerprint: &Fingerprint, block: &Block) -> bool {
        let mut out = vec![0xEE; FORMAT.payload_bytes()];
        match get(self.store(), fingerprint, block, &mut out) {
            None => false,
            Some(()) => {
                let expected = payload(block);
                for (at, bytes, tile) in SLABS {
                    let valid = at..at + block.tokens.len().div_ceil(16) * tile;
                    assert!(
                        out[valid.clone()] == expected[valid.clone()],
                        "wrong bytes for {block:?}"
                    );
                    let rest = &out[valid.end..at + bytes];
                    assert!(rest.iter().all(|byte| *byte == 0), "stray bytes");
                }
                true
            }
        }
    }

    pub fn pool_files(&self) -> Vec<PathBuf> {
        let mut files: Vec<_> = std::fs::read_dir(self.dir())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.retain(|path| {
            path.extension()
                .is_some_and(|extension| extension == "pool")
        });
        files.sort();
        files
    }

    pub fn disk_bytes(&self) -> u64 {
        disk_bytes(&self.dir())
    }
}

/// Reads one block. None if the store has not its very bytes; it is then dropped.
pub fn get(
    store: &mut BlockStore,
    fingerprint: &Fingerprint,
    block: &Block,
    out: &mut [u8],
) -> Option<()> {
    let plan = store.plan(fingerprint, std::slice::from_ref(block))?;
    if plan.num_blocks() == 0 {
        return None;
    }
    let outcome = plan.run(vec![vec![out]], usize::MAX, drop);
    store.drop_unreadable(&plan, &outcome);
    (outcome.num_good == 1).then_some(())
}

fn disk_bytes(dir: &Path) -> u64 {
    std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum()
}

/// The payload that belongs to a block.
pub fn payload(block: &Block) -> Vec<u8> {
    let mut bytes = vec![0; FORMAT.payload_bytes()];
    ChaCha8Rng::from_seed(block.id.0).fill(bytes.as_mut_slice());
    bytes
}

/// The blocks of a sequence of `len` tokens; sequences of one seed share their beginning.
pub fn sequence(fingerprint: &Fingerprint, seed: u64, len: usize) -> Vec<Block> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let tokens: Vec<u32> = (0..len).map(|_| rng.random()).collect();
    let mut blocks: Vec<Block> = Vec::new();
    for chunk in tokens.chunks(64) {
        let block = Block::new(fingerprint, blocks.last(), chunk.to_vec());
        blocks.push(block);
    }
    blocks
}
