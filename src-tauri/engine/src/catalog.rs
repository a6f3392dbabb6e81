//! The list of models: files in the data folder's `models`, and files elsewhere that were added by path. A model is
//! identified by the name of its file; conversations store that name.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::json;
use store::History;
use ts_rs::TS;

use crate::typed_path::{absolute, is_same_file};
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
    /// Architecture; for an unusable file its kind in a few words.
    pub architecture: String,
    /// Whether the file can be used.
    pub usable: bool,
    /// Why it cannot be used and what to do, in one sentence.
    pub problem: Option<String>,
    /// Why the model is not used exactly as its file asks: a chat template that cannot be used.
    pub warning: Option<String>,
    /// Size of the file in bytes.
    #[ts(type = "number")]
    pub file_bytes: u64,
    /// Whether it is the one in use.
    pub loaded: bool,
    /// Whether it is the default, which answers in conversations without a model of their own.
    pub is_default: bool,
    /// Whether it was added by path; otherwise it is in the models folder.
    pub added: bool,
}

/// The result of removing a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct RemovedModel {
    /// Its name.
    pub name: String,
    /// The path of its file.
    pub path: String,
    /// Whether the file was deleted.
    pub deleted: bool,
}

/// A model file and the name by which conversations refer to it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Known {
    pub name: String,
    pub path: PathBuf,
    /// Whether it was added by path; otherwise it is in the models folder.
    added: bool,
}

/// Adds a model file by a path as a person types it, and returns its entry. The file stays where it is. If the name
/// exists and its file is missing or unusable, the new file replaces it; a file that is already listed by another
/// spelling or link keeps its entry.
///
/// # Errors
/// When the file cannot be used, or another usable file has the same name.
pub fn add(history: &mut History, models_folder: &Path, path: &Path) -> Result<ModelEntry> {
    let path = absolute(path)
        .map_err(|error| Error::InvalidArgument(format!("{}: {error}", path.display())))?;
    let name = models::inspect(&path)?.name;
    let all = known(history, models_folder)?;
    if let Some(same) = all.iter().find(|one| is_same_file(&one.path, &path)) {
        return Ok(Listing::of(history, &all, None)?.entry(same));
    }
    if let Some(old) = all.iter().find(|one| one.name == name)
        && models::inspect(&old.path).is_ok()
    {
        return Err(Error::InvalidArgument(format!(
            "there is already a model named {name} at {}; rename the new file first, or remove the old one",
            old.path.display()
        )));
    }
    // Stores the current default, so that a new name that sorts first does not replace it.
    if let Some(default) = default(history, &all)? {
        set_default(history, &default.name)?;
    }
    history.add_model(&name, &path)?;
    let all = known(history, models_folder)?;
    let listing = Listing::of(history, &all, None)?;
    let new = all.iter().find(|one| one.name == name);
    Ok(listing.entry(new.ok_or(Error::Stopped)?))
}

/// Removes a model. A model that was added by path only loses its entry: its file stays. A file in the models folder is
/// deleted, but only if the caller asks for that.
///
/// # Errors
/// [`Error::ModelMissing`]; [`Error::InvalidArgument`] when the file would have to be deleted but the caller did not
/// ask for that, or it cannot be deleted.
pub fn remove(
    history: &mut History,
    models_folder: &Path,
    name: &str,
    delete_file: bool,
) -> Result<RemovedModel> {
    let all = known(history, models_folder)?;
    let model = find(&all, name)?;
    let path = model.path.display().to_string();
    if !model.added {
        if !delete_file {
            return Err(Error::InvalidArgument(format!(
                "{path} lies in the models folder, so that removing it deletes the file; say --delete-file for that, or move it elsewhere"
            )));
        }
        std::fs::remove_file(&model.path).map_err(|error| {
            Error::InvalidArgument(format!("{path} cannot be deleted: {error}"))
        })?;
    }
    // The file in the folder may hide an added entry of the same name whose file is missing.
    history.remove_model(name)?;
    Ok(RemovedModel {
        name: name.to_owned(),
        path,
        deleted: !model.added,
    })
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
    let all = known(history, models_folder)?;
    let listing = Listing::of(history, &all, loaded)?;
    Ok(all.iter().map(|model| listing.entry(model)).collect())
}

/// The file of the model `name`, usable or not. Without a name, the file of the default model: the chosen one, else the
/// first usable one.
///
/// # Errors
/// [`Error::ModelMissing`] with what there is instead.
pub fn resolve(history: &History, models_folder: &Path, name: Option<&str>) -> Result<PathBuf> {
    let all = known(history, models_folder)?;
    let found = match name {
        Some(name) => Some(find(&all, name)?),
        None => default(history, &all)?,
    };
    found
        .map(|model| model.path.clone())
        .ok_or_else(|| none_usable(&all, models_folder))
}

/// Checks that `name` is a usable model, before a conversation stores it.
///
/// # Errors
/// [`Error::ModelMissing`], or the reason why its file cannot be used.
pub fn require(history: &History, models_folder: &Path, name: &str) -> Result<()> {
    let path = resolve(history, models_folder, Some(name))?;
    models::inspect(&path)?;
    Ok(())
}

/// Sets the default model, which answers in conversations without a model of their own.
///
/// # Errors
/// When history cannot be written.
pub fn set_default(history: &mut History, name: &str) -> Result<()> {
    if chosen(history)?.as_deref() == Some(name) {
        return Ok(());
    }
    Ok(history.set_setting(DEFAULT_MODEL_SETTING, &json!(name))?)
}

/// The name of the model that was chosen as the default, even if its file is missing.
pub(crate) fn chosen(history: &History) -> Result<Option<String>> {
    let setting = history.setting(DEFAULT_MODEL_SETTING)?;
    Ok(setting.and_then(|value| value.as_str().map(str::to_owned)))
}

/// The models in fallback order: the chosen default, then the others by name.
pub(crate) fn in_order(history: &History, models_folder: &Path) -> Result<Vec<Known>> {
    let mut all = known(history, models_folder)?;
    let chosen = chosen(history)?;
    all.sort_by_key(|model| chosen.as_ref() != Some(&model.name));
    Ok(all)
}

/// The error when no model is usable.
pub(crate) fn none_usable(all: &[Known], models_folder: &Path) -> Error {
    let folder = models_folder.display();
    let Some(first) = all.first() else {
        return Error::ModelMissing(format!(
            "no model is installed; put a GGUF file into {folder} or add one by its path"
        ));
    };
    let why = models::inspect(&first.path).err();
    Error::ModelMissing(match (why, all.len()) {
        (Some(why), 1) => format!("the only model cannot be used: {why}"),
        (why, count) => format!(
            "none of the {count} models can be used: {}; add another by its path",
            why.map_or_else(|| first.name.clone(), |why| why.to_string())
        ),
    })
}

fn find<'a>(all: &'a [Known], name: &str) -> Result<&'a Known> {
    let found = all.iter().find(|model| model.name == name);
    found.ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|model| model.name.as_str()).collect();
        Error::ModelMissing(match names.is_empty() {
            true => format!("there is no model named {name}, nor any other"),
            false => format!(
                "there is no model named {name}; there is {}",
                names.join(", ")
            ),
        })
    })
}

fn default<'a>(history: &History, all: &'a [Known]) -> Result<Option<&'a Known>> {
    let is_usable = |model: &&Known| models::inspect(&model.path).is_ok();
    let chosen = chosen(history)?;
    let chosen = all
        .iter()
        .find(|model| chosen.as_ref() == Some(&model.name));
    Ok(chosen
        .filter(is_usable)
        .or_else(|| all.iter().find(is_usable)))
}

/// All model files, sorted by name. An added file hides a file of the same name in the models folder.
fn known(history: &History, models_folder: &Path) -> Result<Vec<Known>> {
    let mut all: Vec<Known> = history
        .models()?
        .into_iter()
        .map(|model| Known {
            name: model.name,
            path: PathBuf::from(model.path),
            added: true,
        })
        .collect();
    // A folder that is not there yet holds no models.
    let files = std::fs::read_dir(models_folder).into_iter().flatten();
    let mut files: Vec<PathBuf> = files.flatten().map(|file| file.path()).collect();
    files.sort();
    for path in files {
        let is_gguf = path
            .extension()
            .is_some_and(|ending| ending.eq_ignore_ascii_case("gguf"));
        let Some(stem) = path.file_stem().filter(|_| is_gguf) else {
            continue;
        };
        let name = stem.to_string_lossy().into_owned();
        match all.iter_mut().find(|taken| taken.name == name) {
            // The added file is missing; the file of the same name in the folder replaces it.
            Some(taken) if taken.added && !taken.path.exists() => {
                (taken.path, taken.added) = (path, false);
            }
            Some(_) => {}
            None => all.push(Known {
                name,
                path,
                added: false,
            }),
        }
    }
    all.sort();
    Ok(all)
}

/// The fields of a list entry that do not come from the file itself.
struct Listing<'a> {
    loaded: Option<&'a str>,
    default: Option<&'a str>,
}

impl<'a> Listing<'a> {
    fn of(history: &History, all: &'a [Known], loaded: Option<&'a str>) -> Result<Self> {
        let default = default(history, all)?.map(|model| model.name.as_str());
        Ok(Self { loaded, default })
    }

    fn entry(&self, model: &Known) -> ModelEntry {
        let inspected = models::inspect(&model.path);
        let name = model.name.as_str();
        ModelEntry {
            usable: inspected.is_ok(),
            problem: inspected.as_ref().err().map(ToString::to_string),
            warning: inspected
                .as_ref()
                .ok()
                .and_then(|info| info.warning.clone()),
            architecture: inspected
                .map_or_else(|error| error.label(), |info| info.architecture.to_string()),
            file_bytes: std::fs::metadata(&model.path).map_or(0, |file| file.len()),
            loaded: self.loaded == Some(name),
            is_default: self.default == Some(name),
            added: model.added,
            path: model.path.display().to_string(),
            name: model.name.clone(),
        }
    }
}
