//! The system's page cache, in which nothing stays of what the pool has.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::{Advice, fadvise};
use tests::{Chat, Subject, prose};

/// Bytes of a file that are in the page cache.
fn cached_bytes(file: &File) -> io::Result<u64> {
    const CACHESTAT: libc::c_long = 451;
    let (range, mut pages) = ([0u64, 0], [0u64; 5]);
    // SAFETY: both are as large as the call's structures, and the file is open.
    let failed = unsafe {
        libc::syscall(
            CACHESTAT,
            file.as_raw_fd(),
            range.as_ptr(),
            pages.as_mut_ptr(),
            0,
        )
    };
    match failed {
        0 => Ok(pages[0] * rustix::param::page_size() as u64),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The files of blocks, of which nothing is in the page cache. `None` where it cannot be so, or is not said.
fn forgotten_pools(chat: &Chat) -> Option<Vec<File>> {
    let mut pools = Vec::new();
    for entry in std::fs::read_dir(chat.kv()).expect("kv").flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|ending| ending != "pool") {
            continue;
        }
        let mut options = OpenOptions::new();
        let pool = options.read(true).custom_flags(libc::O_DIRECT).open(&path);
        let pool = pool.ok()?;
        pool.sync_all().expect("sync");
        fadvise(&pool, 0, None, Advice::DontNeed).expect("forget");
        (cached_bytes(&pool).ok()? == 0).then(|| pools.push(pool))?;
    }
    assert!(!pools.is_empty());
    Some(pools)
}

#[test]
fn a_restored_conversation_is_in_memory_once() {
    let mut chat = Chat::new(Subject::Real);
    let first = chat.say(&prose(0, 600));
    chat.stop();
    let Some(pools) = forgotten_pools(&chat) else {
        eprintln!(
            "not tried: this system keeps its files in memory, or does not say what it keeps"
        );
        return;
    };
    let cached = || -> u64 {
        let bytes = pools.iter().map(|pool| cached_bytes(pool).expect("bytes"));
        bytes.sum()
    };
    chat.start();
    let again = chat.say("And then?");
    let bytes_per_token = 12_240;
    let restored = u64::from(again.prefill.restored) * bytes_per_token;
    assert!(
        again.prefill.restored + 64 > first.prefill.computed,
        "{:?}",
        again.prefill
    );
    // What is cached is what was written.
    assert!(cached() < restored / 2, "{} of {restored}", cached());
}
