//! Which models there are: files in the data folder's `models`, and files elsewhere that were added by path. A model is known by the
//! name of its file; conversations keep that name.

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
    /// Architecture; of a file that cannot be used, what it is in a few words.
    pub architecture: String,
    /// Whether the file can be used.
    pub usable: bool,
    /// Why it cannot be used, in one sentence that says what to do.
    pub problem: Option<String>,
    /// What is not as the file means it, though it can be used: its chat template.
    pub warning: Option<String>,
    /// Size of the file in bytes.
    #[ts(type = "number")]
    pub file_bytes: u64,
    /// Whether it is the one in use.
    pub loaded: bool,
    /// Whether it answers where a conversation has no model of its own.
    pub is_default: bool,
    /// Whether it was added by path; else it lies in the models folder.
    pub added: bool,
}

/// What became of a model that was removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct RemovedModel {
    /// Its name.
    pub name: String,
    /// Where its file is, or was.
    pub path: String,
    /// Whether the file was deleted.
    pub deleted: bool,
}

/// A file by the name under which conversations know it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Known {
    pub name: String,
    pub path: PathBuf,
    /// By path, and not by lying in the models folder.
    added: bool,
}

/// Adds a model file by path, as a person writes it, and returns its entry. The file stays where it is. A name whose file is gone or
/// cannot be used takes the new one; a file that is known by another spelling or link is the one that is known.
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
    // What was the default until now stays it, wherever the new name sorts.
    if let Some(default) = default(history, &all)? {
        set_default(history, &default.name)?;
    }
    history.add_model(&name, &path)?;
    let all = known(history, models_folder)?;
    let listing = Listing::of(history, &all, None)?;
    let new = all.iter().find(|one| one.name == name);
    Ok(listing.entry(new.ok_or(Error::Stopped)?))
}

/// Removes a model. One that was added by path is only forgotten: its file stays. A file in the models folder is deleted, and only
/// where that is asked for.
///
/// # Errors
/// [`Error::ModelMissing`]; [`Error::InvalidArgument`] where a file would have to be deleted and that was not asked for, or cannot be.
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
    // An entry whose own file is gone may stand behind the one in the folder.
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

/// The file of the model `name`, usable or not; of the default one when absent: what was chosen, else the first that can be used.
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

/// The name of a model that can be used, for a conversation to keep.
///
/// # Errors
/// [`Error::ModelMissing`], or why its file cannot be used.
pub fn require(history: &History, models_folder: &Path, name: &str) -> Result<()> {
    let path = resolve(history, models_folder, Some(name))?;
    models::inspect(&path)?;
    Ok(())
}

/// Chooses the model that answers where a conversation has none.
///
/// # Errors
/// When history cannot be written.
pub fn set_default(history: &mut History, name: &str) -> Result<()> {
    if chosen(history)?.as_deref() == Some(name) {
        return Ok(());
    }
    Ok(history.set_setting(DEFAULT_MODEL_SETTING, &json!(name))?)
}

/// The model that was chosen as the default, whether or not it is still there.
pub(crate) fn chosen(history: &History) -> Result<Option<String>> {
    let setting = history.setting(DEFAULT_MODEL_SETTING)?;
    Ok(setting.and_then(|value| value.as_str().map(str::to_owned)))
}

/// The models in the order in which they stand in for one that cannot be used: the chosen one, then the others by name.
pub(crate) fn in_order(history: &History, models_folder: &Path) -> Result<Vec<Known>> {
    let mut all = known(history, models_folder)?;
    let chosen = chosen(history)?;
    all.sort_by_key(|model| chosen.as_ref() != Some(&model.name));
    Ok(all)
}

/// Why no model answers at all.
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

/// Every file, by name: those that were added, and those of the folder whose names they have not taken.
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
            // The file that was added is gone, and this one has its name.
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

/// What the list says of a model beside its file.
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
