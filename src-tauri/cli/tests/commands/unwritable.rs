//! Reading from a read-only folder and from a full disk.

#![cfg(unix)]

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use crate::support::{Folder, lines, string};

const CLI: &str = env!("CARGO_BIN_EXE_reprise-cli");

/// Runs a shell command line; `$CLI` is the program and `$DIR` its data folder.
fn shell(folder: &Folder, line: &str) -> Output {
    Command::new("sh")
        .args(["-c", line])
        .env("DIR", folder.path())
        .env(
            "CLI",
            format!("{CLI} --json --data-dir {}", folder.path().display()),
        )
        .env_remove("REPRISE_PASSPHRASE")
        .stdin(Stdio::null())
        .output()
        .expect("sh")
}

/// A folder with one conversation that has a reply, and the conversation's id.
fn spoken() -> (Folder, String) {
    let folder = Folder::with_model();
    let id = folder.conversation();
    folder.send(&id, "where is the lighthouse");
    (folder, id)
}

/// Runs every reading command in a shell prepared by `before`.
fn assert_readable(folder: &Folder, id: &str, before: &str) {
    for command in [
        "chat list",
        &format!("chat show {id}"),
        "chat search lighthouse",
        &format!("chat export {id}"),
    ] {
        let output = shell(folder, &format!("{before} $CLI {command}"));
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(output.status.success(), "{command}: {out}{err}");
        assert!(out.contains("lighthouse"), "{command}: {out}");
    }
}

fn assert_refused(folder: &Folder, before: &str, code: &str, words: &str) {
    let output = shell(folder, &format!("{before} $CLI chat new"));
    assert!(!output.status.success());
    let error = lines(&String::from_utf8_lossy(&output.stdout)).pop();
    let error = error.unwrap_or_else(|| {
        lines(&String::from_utf8_lossy(&output.stderr))
            .pop()
            .expect("an error")
    });
    assert_eq!(string(&error, "code"), code, "{error}");
    assert!(string(&error, "message").contains(words), "{error}");
}

#[test]
fn a_full_disk_is_named_and_everything_can_be_read() {
    let (folder, id) = spoken();
    // A file size limit of 0 makes every write fail as on a full disk, on any file system.
    let full = "trap '' XFSZ; ulimit -f 0;";
    assert_readable(&folder, &id, full);
    assert_refused(&folder, full, "disk_full", "the disk is full");
    assert!(folder.conversation() != id, "with room again all is well");
}

#[test]
fn a_read_only_folder_can_be_read() {
    let (folder, id) = spoken();
    let mode = |mode: u32| {
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode))
            .expect("mode");
    };
    // Root ignores file modes, but can mount read-only.
    let mounted = "mount --bind $DIR $DIR && mount -o remount,bind,ro $DIR || exit 99;";
    if shell(&folder, &format!("unshare -m sh -c '{mounted} true'"))
        .status
        .success()
    {
        let before = format!("unshare -m sh -c '{mounted} exec \"$@\"' sh");
        assert_readable(&folder, &id, &before);
        return assert_refused(&folder, &before, "read_only", "can only be read");
    }
    mode(0o500);
    let binds = std::fs::write(folder.path().join("probe"), "").is_err();
    if binds {
        for file in std::fs::read_dir(folder.path()).expect("folder").flatten() {
            let bits = if file.path().is_dir() { 0o500 } else { 0o400 };
            let bits = std::fs::Permissions::from_mode(bits);
            std::fs::set_permissions(file.path(), bits).expect("mode");
        }
        assert_readable(&folder, &id, "");
        assert_refused(&folder, "", "read_only", "read");
    } else {
        eprintln!("skipped: this user can write everywhere and mount nothing");
    }
    mode(0o700);
}
