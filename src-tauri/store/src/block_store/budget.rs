//! How much the store may use and how much it uses.

use std::path::Path;

use super::Budget;

const MAX_DEFAULT_BYTES: u64 = 20 << 30;

/// The budget in bytes. What the store uses already counts as free, so that a full cache does not shrink its own budget.
pub(super) fn bytes(budget: Budget, dir: &Path) -> u64 {
    match budget {
        Budget::Bytes(bytes) => bytes,
        Budget::Default => match fs4::available_space(dir) {
            Ok(free) => MAX_DEFAULT_BYTES.min(free.saturating_add(used(dir)) / 4),
            Err(error) => {
                tracing::warn!(dir = %dir.display(), %error, "the free disk space is not known; using 1 GiB for blocks");
                1 << 30
            }
        },
    }
}

/// The length of everything in the folder, whoever made it.
pub(super) fn used(dir: &Path) -> u64 {
    let mut total = 0;
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        // Of the entry itself: a link counts as a link.
        if let Ok(metadata) = entry.metadata() {
            total += if metadata.is_dir() {
                used(&entry.path())
            } else {
                metadata.len()
            };
        }
    }
    total
}
