//! What the store holds, and whether it still is what it was.

use super::{BlockId, BlockStore, CacheStats, Entry, PoolStats, VerifyReport, budget};

impl BlockStore {
    /// Counts what the store holds; fingerprints opened in this run first.
    pub fn stats(&self) -> CacheStats {
        let mut pools: Vec<PoolStats> = self
            .pools
            .values()
            .map(|pool| PoolStats {
                fingerprint: pool.fingerprint.to_string(),
                label: pool.label.clone(),
                num_blocks: self
                    .entries
                    .values()
                    .filter(|entry| entry.fingerprint == pool.fingerprint)
                    .count() as u64,
                bytes: pool.bytes(),
                known: pool.known,
            })
            .collect();
        pools.sort_by(|a, b| {
            (!a.known, &a.label, &a.fingerprint).cmp(&(!b.known, &b.label, &b.fingerprint))
        });
        let live = |entry: &Entry| {
            self.pools[&entry.fingerprint]
                .format
                .written_bytes(entry.place.file.form, entry.block.tokens.len())
        };
        CacheStats {
            budget_bytes: self.budget_bytes,
            file_bytes: budget::used(&self.dir),
            live_bytes: self.entries.values().map(live).sum(),
            num_blocks: self.entries.len() as u64,
            pools,
        }
    }

    /// Reads every block. Those that are not what the index says are dropped, with everything below them.
    pub fn verify(&mut self) -> VerifyReport {
        let mut out = Vec::new();
        let mut bad: Vec<BlockId> = Vec::new();
        for entry in self.entries.values() {
            let pool = &self.pools[&entry.fingerprint];
            out.resize(pool.format.payload_bytes(), 0);
            if let Err(reason) = pool.read(&self.dir, entry.place, &entry.block, &mut out) {
                tracing::warn!(id = ?entry.block.id, fingerprint = ?entry.fingerprint, reason, "a block is dropped");
                bad.push(entry.block.id);
            }
        }
        let report = VerifyReport {
            checked: self.entries.len() as u64,
            bad: bad.len() as u64,
        };
        for id in bad {
            let ids = self.subtree(id);
            self.remove(&ids, None);
        }
        report
    }
}
