//! The cache from outside: it may be damaged or deleted, and no word is lost.

use std::fs::OpenOptions;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::support::{Folder, counts, long_text, number};

#[test]
fn a_flipped_byte_is_found_dropped_and_computed_again() {
    let folder = Folder::with_model();
    let id = folder.conversation();
    folder.send(&id, &long_text());
    let good = folder.last(&["cache", "verify"]);
    assert!(
        number(&good, "checked") > 2 && number(&good, "bad") == 0,
        "{good}"
    );

    flip_a_byte_in_every_block(folder.path());
    let found = folder.last(&["cache", "verify"]);
    assert!(number(&found, "bad") > 0, "{found}");
    assert_eq!(
        number(&folder.last(&["cache", "verify"]), "bad"),
        0,
        "what was bad is gone"
    );
    let next = folder.send(&id, "and then");
    assert!(counts(&next)[2] > 100, "{next}");
}

#[test]
fn a_damaged_block_changes_no_word() {
    let [whole, damaged] = [false, true].map(|damage| {
        let folder = Folder::with_model();
        let id = folder.conversation();
        folder.send(&id, &long_text());
        if damage {
            flip_a_byte_in_every_block(folder.path());
        }
        folder.send(&id, "and then")
    });
    assert!(counts(&whole)[1] > counts(&damaged)[1]);
    assert_eq!(whole["text"], damaged["text"]);
}

#[test]
fn clearing_or_deleting_the_cache_loses_no_word() {
    let folder = Folder::with_model();
    let id = folder.conversation();
    folder.send(&id, &long_text());
    assert_eq!(folder.last(&["cache", "clear"])["cleared"], true);
    assert_eq!(number(&folder.last(&["cache", "stats"]), "num_blocks"), 0);
    let next = folder.send(&id, "and then");
    assert_eq!(counts(&next)[1], 0);
    std::fs::remove_dir_all(folder.path().join("kv")).expect("deleted");
    assert_eq!(counts(&folder.send(&id, "and again"))[1], 0);
    assert_eq!(folder.messages(&id).len(), 6);
}

/// One byte in every 4 KiB, so that no slot stays as it was.
fn flip_a_byte_in_every_block(data: &Path) {
    let mut flipped = 0;
    for path in pool_files(&data.join("kv")) {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .expect("pool file");
        let length = file.metadata().expect("length").len();
        for at in (1000..length).step_by(4096) {
            let mut byte = [0];
            file.seek(SeekFrom::Start(at))
                .and_then(|_| file.read_exact(&mut byte))
                .expect("read");
            byte[0] ^= 1;
            file.seek(SeekFrom::Start(at))
                .and_then(|_| file.write_all(&byte))
                .expect("written");
            flipped += 1;
        }
    }
    assert!(flipped > 0, "no pool file");
}

fn pool_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("folder") {
        let path = entry.expect("entry").path();
        if path.is_dir() {
            files.extend(pool_files(&path));
        } else if !path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().contains("index"))
        {
            files.push(path);
        }
    }
    files
}
