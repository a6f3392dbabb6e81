//! What must not be in a tracked file: a path of one machine, or the address a package was downloaded from.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{Result, process};

/// Beginnings of paths that exist on one machine only. Written in halves, so that this file passes its own check.
const PATHS: [&str; 6] = [
    concat!("/ro", "ot/"),
    concat!("/wo", "rk/"),
    concat!("/fa", "rm/"),
    concat!("/tm", "p/w/"),
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
];
/// Nobody's name: a home of theirs is an example.
const EXAMPLE_USER: &str = "you";
/// What a lock file says about where a package came from.
const ADDRESSES: [&str; 3] = [
    concat!("\"resol", "ved\": \"http"),
    concat!("files.python", "hosted"),
    concat!("--index", "-url"),
];

/// Every line of a tracked text file that names one, or nothing.
pub(crate) fn check(root: &Path) -> Result<()> {
    if !root.join(".git").exists() {
        println!("not a git checkout: nothing is tracked");
        return Ok(());
    }
    let list = process::output(
        Command::new("git")
            .args(["ls-files", "-z"])
            .current_dir(root),
    )?;
    let mut wrong = Vec::new();
    let mut num_files = 0;
    for name in list.split('\0').filter(|name| !name.is_empty()) {
        // Deleted but not yet committed, or not text: nothing to read.
        let Ok(text) = fs::read_to_string(root.join(name)) else {
            continue;
        };
        num_files += 1;
        wrong.extend(found(&text).map(|(number, line)| format!("{name}:{number}: {line}")));
    }
    if wrong.is_empty() {
        println!("{num_files} text files name no machine path and no download address");
        Ok(())
    } else {
        Err(wrong.join("\n  "))
    }
}

fn found(text: &str) -> impl Iterator<Item = (usize, String)> {
    text.lines()
        .enumerate()
        .filter(|(_, line)| {
            PATHS.iter().any(|path| begins_path(line, path))
                || ADDRESSES.iter().any(|a| line.contains(a))
        })
        .map(|(index, line)| (index + 1, line.trim().chars().take(120).collect()))
}

/// `path` stands in `line` as the beginning of a path, not in the middle of one or of an address.
fn begins_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let of_nobody = line[at + path.len()..]
            .strip_prefix(EXAMPLE_USER)
            .is_some_and(|rest| !rest.starts_with(char::is_alphanumeric));
        !of_nobody
            && !before.is_some_and(|char| {
                char.is_alphanumeric() || matches!(char, '.' | '-' | '_' | '/' | '}' | '~')
            })
    })
}

#[cfg(test)]
mod tests {
    use super::found;

    #[test]
    fn a_machine_path_is_found_and_a_longer_path_is_not() {
        let home = concat!("/ho", "me/");
        assert_eq!(found(&format!("x\nopen({home}me/file)")).count(), 1);
        assert_eq!(found(&format!("see example.org{home}page")).count(), 0);
        assert_eq!(found(&format!("'{home}you/file'")).count(), 0);
        assert_eq!(
            found(concat!("\"resol", "ved\": \"https://example.org/a.tgz\"")).count(),
            1
        );
    }
}
