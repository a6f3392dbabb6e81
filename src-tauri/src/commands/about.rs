//! What this application is and where it keeps its things.

use serde::Serialize;
use ts_rs::TS;

use crate::api_error::ApiError;
use crate::app::OpenApp;

/// Shown in the settings.
#[derive(Debug, Serialize, TS)]
pub struct AppInfo {
    /// Version of the application.
    pub version: &'static str,
    /// What computes: `cpu` or the name of a GPU.
    pub device: String,
    /// The data folder.
    pub data_dir: String,
    /// Name of the loaded model.
    pub model: Option<String>,
}

#[tauri::command(async)]
pub(crate) fn app_info(app: OpenApp) -> Result<AppInfo, ApiError> {
    let model = app.engine.loaded()?;
    Ok(AppInfo {
        version: env!("CARGO_PKG_VERSION"),
        device: "cpu".to_owned(),
        data_dir: app.data.path().display().to_string(),
        model: model.map(|model| model.name),
    })
}
