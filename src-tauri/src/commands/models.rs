//! Model files: which there are, adding one, using one.

use std::path::Path;

use engine::{ModelEntry, RemovedModel, catalog};
use tauri::AppHandle;
use tauri_plugin_dialog::DialogExt;

use crate::api_error::ApiError;
use crate::app::OpenApp;

#[tauri::command(async)]
pub(crate) fn list_models(app: OpenApp) -> Result<Vec<ModelEntry>, ApiError> {
    let loaded = app.engine.loaded()?;
    let name = loaded.as_ref().map(|model| model.name.as_str());
    Ok(catalog::list(
        &app.history(),
        &app.data.models_path(),
        name,
    )?)
}

#[tauri::command(async)]
pub(crate) fn add_model(app: OpenApp, path: String) -> Result<ModelEntry, ApiError> {
    Ok(catalog::add(
        &mut app.history(),
        &app.data.models_path(),
        Path::new(&path),
    )?)
}

/// Removes a model: an added model loses its entry; a file in the models folder is deleted if the caller asks for that.
/// If the model is loaded, it is unloaded before its file is deleted, since some systems cannot delete an open file.
#[tauri::command(async)]
pub(crate) fn remove_model(
    app: OpenApp,
    name: String,
    delete_file: bool,
) -> Result<RemovedModel, ApiError> {
    let loaded = app.engine.loaded()?;
    let is_loaded = loaded.is_some_and(|model| model.name == name);
    if is_loaded && delete_file {
        app.engine.release()?;
    }
    let folder = app.data.models_path();
    let removed = catalog::remove(&mut app.history(), &folder, &name, delete_file)?;
    if is_loaded && !removed.deleted {
        app.engine.release()?;
    }
    Ok(removed)
}

/// Asks for a model file in the system's own dialog; nothing when the person turns away.
#[tauri::command(async)]
pub(crate) fn choose_model(handle: AppHandle) -> Option<String> {
    let chosen = handle
        .dialog()
        .file()
        .set_title("Add a model")
        .add_filter("Model files (GGUF)", &["gguf"])
        .blocking_pick_file();
    chosen.map(|path| path.to_string())
}

/// Loads a model, which from then on is the one that new conversations use.
#[tauri::command(async)]
pub(crate) fn load_model(app: OpenApp, name: String) -> Result<(), ApiError> {
    app.engine.load(Some(name.clone()))?;
    Ok(catalog::set_default(&mut app.history(), &name)?)
}
