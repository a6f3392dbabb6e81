//! The cache on disk: how large it is, and emptying it.

use store::CacheStats;

use crate::api_error::ApiError;
use crate::app::OpenApp;

#[tauri::command(async)]
pub(crate) fn cache_stats(app: OpenApp) -> Result<CacheStats, ApiError> {
    Ok(app.engine.cache_stats()?)
}

#[tauri::command(async)]
pub(crate) fn clear_cache(app: OpenApp) -> Result<(), ApiError> {
    Ok(app.engine.cache_clear()?)
}
