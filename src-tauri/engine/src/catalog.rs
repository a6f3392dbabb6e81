//! Which models there are: files in the data folder's `models`, and files elsewhere that were added by path.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use store::History;
use ts_rs::TS;

use crate::{Error, Result};

/// Setting that names the model used where a conversation has none.
pub const DEFAULT_MODEL_SETTING: &str = "default_model";

/// One model file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct ModelEntry {
    /// File name without its ending; unique.
    pub name: String,
    /// Where the file is.
    pub path: String,
    /// Architecture, or the reason why the file cannot be used.
    pub architecture: String,
    /// Whether the file can be used.
    pub usable: bool,
    /// Size of the file in bytes.
    #[ts(type = "number")]
    pub file_bytes: u64,
    /// Whether it is the one in use.
    pub loaded: bool,
}

/// Adds a model file by path and returns its entry. The file stays where it is.
///
/// # Errors
/// When the file cannot be used, or another file has the same name.
pub fn add(history: &mut History, models_folder: &Path, path: &Path) -> Result<ModelEntry> {
    let path = std::path::absolute(path)
        .map_err(|error| Error::InvalidArgument(format!("{}: {error}", path.display())))?;
    let info = models::inspect(&path)?;
    let taken = paths(history, models_folder)?
        .into_iter()
        .find(|(name, _)| *name == info.name);
    match taken {
        Some((_, old)) if old != path => Err(Error::InvalidArgument(format!(
            "there is already a model named {} at {}; rename the new file first",
            info.name,
            old.display()
        ))),
        Some(_) => Ok(entry(info.name, &path, None)),
        None => {
            history.add_model(&info.name, &path)?;
            Ok(entry(info.name, &path, None))
        }
    }
}

/// All models, by name. `loaded` is the name of the one in use.
///
/// # Errors
/// When history cannot be read.
pub fn list(
    history: &History,
    models_folder: &Path,
    loaded: Option<&str>,
) -> Result<Vec<ModelEntry>> {
    Ok(paths(history, models_folder)?
        .into_iter()
        .map(|(name, path)| entry(name, &path, loaded))
        .collect())
}

/// The file of the model `name`; of the default one when absent.
///
/// # Errors
/// [`Error::ModelMissing`] with what there is instead.
pub fn resolve(history: &History, models_folder: &Path, name: Option<&str>) -> Result<PathBuf> {
    let paths = paths(history, models_folder)?;
    if paths.is_empty() {
        return Err(Error::ModelMissing(format!(
            "no model is installed; put a GGUF file into {} or add one by its path",
            models_folder.display()
        )));
    }
    let setting = history.setting(DEFAULT_MODEL_SETTING)?;
    let default = setting.as_ref().and_then(|value| value.as_str());
    let found = match name {
        Some(name) => paths.iter().find(|(candidate, _)| candidate == name),
        None => paths
            .iter()
            .find(|(candidate, _)| Some(candidate.as_str()) == default)
            .or(paths.first()),
    };
    found.map(|(_, path)| path.clone()).ok_or_else(|| {
        let names: Vec<_> = paths.iter().map(|(name, _)| name.as_str()).collect();
        Error::ModelMissing(format!(
            "there is no model named {}; there is {}",
            name.unwrap_or_default(),
            names.join(", ")
        ))
    })
}

fn paths(history: &History, models_folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut paths: Vec<(String, PathBuf)> = history
        .models()?
        .into_iter()
        .map(|model| (model.name, PathBuf::from(model.path)))
        .collect();
    // A folder that is not there yet holds no models.
    for file in std::fs::read_dir(models_folder)
        .into_iter()
        .flatten()
        .flatten()
    {
        let path = file.path();
        let is_gguf = path
            .extension()
            .is_some_and(|ending| ending.eq_ignore_ascii_case("gguf"));
        if let (true, Some(name)) = (is_gguf, path.file_stem().and_then(|name| name.to_str()))
            && !paths.iter().any(|(taken, _)| taken == name)
        {
            paths.push((name.to_owned(), path));
        }
    }
    paths.sort();
    Ok(paths)
}

fn entry(name: String, path: &Path, loaded: Option<&str>) -> ModelEntry {
    let inspected = models::inspect(path);
    ModelEntry {
        usable: inspected.is_ok(),
        architecture: inspected.map_or_else(
            |error| error.to_string(),
            |info| info.architecture.to_string(),
        ),
        file_bytes: std::fs::metadata(path).map_or(0, |file| file.len()),
        loaded: loaded == Some(name.as_str()),
        path: path.display().to_string(),
        name,
    }
}
