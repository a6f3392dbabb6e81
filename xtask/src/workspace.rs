//! Where things are: the checkout, the target folder, the binaries, the application's data folder.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::{Result, process};

/// One set of packages and features for clippy, build and test: another set would unify features differently and
/// rebuild the window toolkit each time.
pub(crate) const SELECTION: [&str; 3] = ["--workspace", "--features", "reprise/custom-protocol"];

/// The checkout and what cargo knows of it.
pub(crate) struct Workspace {
    /// Root of the checkout.
    pub(crate) root: PathBuf,
    /// Cargo's target folder, wherever configuration or environment put it.
    pub(crate) target: PathBuf,
    /// `cargo metadata`, resolved for all platforms.
    pub(crate) metadata: Value,
}

impl Workspace {
    pub(crate) fn open() -> Result<Workspace> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = manifest
            .parent()
            .ok_or("xtask stands outside a checkout")?
            .to_owned();
        let json = process::output(
            Command::new("cargo")
                .args(["metadata", "--format-version", "1", "--locked"])
                .current_dir(&root),
        )?;
        let metadata: Value = serde_json::from_str(&json).map_err(|error| error.to_string())?;
        let target = metadata["target_directory"]
            .as_str()
            .ok_or("cargo metadata names no target folder")?
            .into();
        Ok(Workspace {
            root,
            target,
            metadata,
        })
    }

    pub(crate) fn ui(&self) -> PathBuf {
        self.root.join("ui")
    }

    /// A built binary of `profile` ("debug" or "release").
    pub(crate) fn binary(&self, profile: &str, name: &str) -> PathBuf {
        let file = format!("{name}{}", std::env::consts::EXE_SUFFIX);
        self.target.join(profile).join(file)
    }

    /// `cargo VERB` at the root of the checkout.
    pub(crate) fn cargo(&self, verb: &str) -> Command {
        let mut command = Command::new("cargo");
        command.arg(verb).current_dir(&self.root);
        command
    }

    /// `npm …` in the UI's folder.
    pub(crate) fn npm(&self, args: &[&str]) -> Command {
        let mut command = Command::new(process::NPM);
        command.args(args).current_dir(self.ui());
        command
    }
}

/// The data folder by the platform's convention: the same rule as `store::DataFolder`, which xtask cannot call
/// without taking the application's lock.
pub(crate) fn data_folder() -> Result<PathBuf> {
    dirs::data_dir()
        .map(|dir| dir.join("reprise"))
        .ok_or_else(|| "this system names no data folder (is HOME set?)".to_owned())
}
