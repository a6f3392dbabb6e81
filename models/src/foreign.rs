//! Recognizes files that are not one whole GGUF file by their name and their first bytes.

use std::path::Path;

/// The file type that begins with these bytes, with its article; `None` for GGUF or a prefix of its magic number.
pub(crate) fn looks_like(head: &[u8]) -> Option<&'static str> {
    let begins = |magic: &[u8]| head.starts_with(magic);
    if begins(b"GGUF") || b"GGUF".starts_with(head) {
        return None;
    }
    if begins(b"PK\x03\x04") {
        return Some("a zip archive (as PyTorch checkpoints are)");
    }
    if begins(b"\x1f\x8b") || begins(b"BZh") || begins(b"\xfd7zXZ") || begins(b"\x28\xb5\x2f\xfd") {
        return Some("a compressed archive, to be unpacked first");
    }
    if begins(b"7z\xbc\xaf") || begins(b"Rar!") {
        return Some("an archive, to be unpacked first");
    }
    // The magic numbers of the older formats (GGML, GGMF, GGJT, GGLA), little endian.
    if [b"lmgg", b"fmgg", b"tjgg", b"algg"]
        .iter()
        .any(|m| begins(*m))
    {
        return Some("an older GGML file, which has to be converted");
    }
    if begins(b"FUGG") {
        return Some("a GGUF file for machines of the other byte order");
    }
    if begins(b"version https://git-lfs") {
        return Some("a pointer of Git LFS to the file (fetch it with `git lfs pull`)");
    }
    if begins(b"\x80\x02") || begins(b"\x80\x04") {
        return Some("a Python pickle");
    }
    if begins(b"\x89HDF") {
        return Some("an HDF5 file");
    }
    // safetensors: the length of a JSON header, then the header.
    if head.len() > 9 && head[8] == b'{' && matches!(head[5..8], [0, 0, 0]) {
        return Some("a safetensors file, which has to be converted");
    }
    let text = std::str::from_utf8(head).or_else(|error| {
        // The head may end inside a character.
        std::str::from_utf8(&head[..error.valid_up_to()]).map(|text| {
            if head.len() - text.len() < 4 {
                text
            } else {
                ""
            }
        })
    });
    let text = text.unwrap_or_default().trim_start().to_lowercase();
    if text.starts_with("<!doctype html") || text.starts_with("<html") {
        return Some("a web page (the page of the download was saved, not the file)");
    }
    if text.starts_with('{') || text.starts_with('[') {
        return Some("a JSON file");
    }
    let is_text = |text: &str| {
        let is_odd = |c: char| c.is_control() && !c.is_whitespace();
        text.len() > 8 && !text.chars().any(is_odd)
    };
    Some(match is_text(&text) {
        true => "a text file",
        false => "something else",
    })
}

/// `…-00002-of-00003.gguf`: part 2 of 3.
pub(crate) fn part_by_name(path: &Path) -> Option<(u64, u64)> {
    let name = path.file_stem()?.to_str()?;
    let (rest, count) = name.rsplit_once("-of-")?;
    let (_, number) = rest.rsplit_once('-')?;
    let digits = |text: &str| text.len() >= 2 && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(number) || !digits(count) {
        return None;
    }
    let (number, count) = (number.parse().ok()?, count.parse().ok()?);
    (count > 1 && (1..=count).contains(&number)).then_some((number, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_tell_what_a_file_is() {
        let mut safetensors = 80u64.to_le_bytes().to_vec();
        safetensors.extend(b"{\"__metadata__\":{}");
        for (head, what) in [
            (&safetensors[..], "safetensors"),
            (b"PK\x03\x04....", "zip"),
            (b"\n<!DOCTYPE html><html>", "web page"),
            (b"version https://git-lfs.github.com/spec/v1", "Git LFS"),
            (b"tjgg\x03\0\0\0", "older GGML"),
            (b"{\"a\": 1}", "JSON"),
            ("root:x:0:0:Größe".as_bytes(), "a text file"),
            (&"root:x:0:0:Größ".as_bytes()[..14], "a text file"),
            (b"\x01\x02\x03\x04\x05\x06\x07\x08\x09", "something else"),
        ] {
            let seen = looks_like(head).unwrap_or("GGUF");
            assert!(seen.contains(what), "{head:?}: {seen}");
        }
        assert_eq!(looks_like(b"GGUF\x03\0\0\0"), None);
    }

    #[test]
    fn a_part_is_known_by_its_name() {
        let of = |name: &str| part_by_name(Path::new(name));
        assert_eq!(of("/a/b-Q4_K-00002-of-00003.gguf"), Some((2, 3)));
        assert_eq!(of("b-00001-of-00001.gguf"), None);
        assert_eq!(of("b-00004-of-00003.gguf"), None);
        assert_eq!(of("best-of-10.gguf"), None);
        assert_eq!(of("b-2-of-3.gguf"), None);
    }
}
