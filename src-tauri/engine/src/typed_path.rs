//! Parses a path that a person types, pastes or drops: expands `~`, decodes `file://` URLs and removes quotes, as no
//! shell has done so.

use std::path::{Path, PathBuf};

/// The absolute path without `..` of the typed path. Symbolic links are kept, since a model is named after the link.
///
/// # Errors
/// When the working folder, or a folder on the path, cannot be read.
pub(crate) fn absolute(typed: &Path) -> std::io::Result<PathBuf> {
    let meant = match typed.to_str() {
        Some(text) => meant(text, std::env::home_dir().as_deref()),
        None => typed.to_owned(),
    };
    let path = std::path::absolute(meant)?;
    let climbs = path
        .components()
        .any(|part| part == std::path::Component::ParentDir);
    match (climbs, path.parent(), path.file_name()) {
        // Only the file system can resolve `..` after a symbolic link.
        (true, Some(folder), Some(name)) => Ok(plain(folder.canonicalize()?).join(name)),
        _ => Ok(path),
    }
}

/// Whether two paths name one file, by symbolic links or different spellings. Hard links under two names count as two
/// files.
pub(crate) fn is_same_file(one: &Path, other: &Path) -> bool {
    if one == other {
        return true;
    }
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

fn meant(typed: &str, home: Option<&Path>) -> PathBuf {
    let text = typed.trim();
    let quoted = ['"', '\''].iter().find_map(|quote| {
        text.strip_prefix(*quote)?
            .strip_suffix(*quote)
            .filter(|inner| !inner.is_empty())
    });
    let text = quoted.unwrap_or(text);
    if let Some(path) = of_address(text) {
        return path;
    }
    let below_home = text.strip_prefix('~').zip(home);
    match below_home {
        Some(("", home)) => home.to_owned(),
        Some((rest, home)) if rest.starts_with(std::path::is_separator) => {
            home.join(rest.trim_start_matches(std::path::is_separator))
        }
        // `~name` is another user's home, or a file name.
        _ => PathBuf::from(text),
    }
}

/// The path that a `file:` URL names (RFC 8089).
fn of_address(text: &str) -> Option<PathBuf> {
    let scheme = text.get(..5)?;
    if !scheme.eq_ignore_ascii_case("file:") {
        return None;
    }
    let rest = &text[5..];
    let (host, path) = match rest.strip_prefix("//") {
        Some(rest) => rest.split_at(rest.find('/')?),
        None if rest.starts_with('/') => ("", rest),
        None => return None,
    };
    let path = decoded(path);
    let is_here = host.is_empty() || host.eq_ignore_ascii_case("localhost");
    Some(local(if is_here { None } else { Some(host) }, path))
}

#[cfg(not(windows))]
fn local(host: Option<&str>, path: Vec<u8>) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    // A URL with another host is kept as it is, so that the error names it.
    let bytes = match host {
        Some(host) => [b"//", host.as_bytes(), &path].concat(),
        None => path,
    };
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

/// Converts `/C:/x` to `C:\x`, and a host to a network share.
#[cfg(windows)]
fn local(host: Option<&str>, path: Vec<u8>) -> PathBuf {
    let path = String::from_utf8_lossy(&path).replace('/', "\\");
    match host {
        Some(host) => PathBuf::from(format!(r"\\{host}{path}")),
        None => {
            let has_drive = path.as_bytes().get(2) == Some(&b':');
            PathBuf::from(if has_drive { &path[1..] } else { &path })
        }
    }
}

/// Decodes percent-encoding (`%20` is a space); invalid codes are kept.
fn decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let hex = |at: usize| {
        let digit = |at: usize| char::from(*bytes.get(at)?).to_digit(16);
        Some((digit(at)? * 16 + digit(at + 1)?) as u8)
    };
    let mut all = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match (bytes[at], hex(at + 1)) {
            (b'%', Some(byte)) => {
                all.push(byte);
                at += 3;
            }
            (byte, _) => {
                all.push(byte);
                at += 1;
            }
        }
    }
    all
}

#[cfg(not(windows))]
fn plain(path: PathBuf) -> PathBuf {
    path
}

/// Removes the prefix `\\?\`, which Windows adds to a canonical path, if it is not needed.
#[cfg(windows)]
fn plain(path: PathBuf) -> PathBuf {
    let short = path.to_str().and_then(|text| {
        let rest = text.strip_prefix(r"\\?\")?;
        match rest.strip_prefix(r"UNC\") {
            Some(share) => Some(format!(r"\\{share}")),
            None => (rest.as_bytes().get(1) == Some(&b':')).then(|| rest.to_owned()),
        }
    });
    short.map_or(path, PathBuf::from)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{absolute, meant};

    #[test]
    fn what_a_shell_would_have_done_is_done() {
        let home = Path::new("/home/you");
        let is = |typed: &str, path: &str| {
            assert_eq!(meant(typed, Some(home)), PathBuf::from(path), "{typed}");
        };
        is("~/x.gguf", "/home/you/x.gguf");
        is("~", "/home/you");
        is(" \"/a b/x.gguf\" ", "/a b/x.gguf");
        is("'~/x.gguf'", "/home/you/x.gguf");
        is("/a/b's.gguf", "/a/b's.gguf");
        is("~x/y.gguf", "~x/y.gguf");
        is("a/~/y.gguf", "a/~/y.gguf");
        assert_eq!(meant("~/x", None), PathBuf::from("~/x"));
    }

    #[cfg(not(windows))]
    #[test]
    fn a_file_address_is_a_path() {
        let is = |typed: &str, path: &str| {
            assert_eq!(meant(typed, None), PathBuf::from(path), "{typed}");
        };
        is("file:///models/x.gguf", "/models/x.gguf");
        is("FILE://localhost/models/x.gguf", "/models/x.gguf");
        is("file:/models/x.gguf", "/models/x.gguf");
        is(
            "file:///My%20Models/%E6%A8%A1%E5%9E%8B.gguf",
            "/My Models/模型.gguf",
        );
        is("file:///100%.gguf", "/100%.gguf");
        is("file:///a%2", "/a%2");
        is("file.gguf", "file.gguf");
        is("filé:x", "filé:x");
        is("https://example.org/x.gguf", "https://example.org/x.gguf");
    }

    #[cfg(windows)]
    #[test]
    fn a_file_address_is_a_path_with_a_drive_or_a_share() {
        let is = |typed: &str, path: &str| {
            assert_eq!(meant(typed, None), PathBuf::from(path), "{typed}");
        };
        is("file:///C:/My%20Models/x.gguf", r"C:\My Models\x.gguf");
        is("file://server/share/x.gguf", r"\\server\share\x.gguf");
    }

    #[test]
    fn what_climbs_is_followed_and_the_name_of_a_link_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        let typed = root.join("a/b/../x.gguf");
        let wanted = super::plain(root.clone()).join("a").join("x.gguf");
        assert_eq!(absolute(&typed).unwrap(), wanted);
    }
}
