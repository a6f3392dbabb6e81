//! Memory: what it is used for, what a model would take, and giving it back.

use engine::{
    Circumstances, DeviceList, DiskPlan, EngineConfig, MemoryLimits, MemoryPlan, MemoryStats,
    Released, catalog, plan_of, reserves_context,
};

use crate::api_error::ApiError;
use crate::app::OpenApp;

#[tauri::command(async)]
pub(crate) fn memory_stats(app: OpenApp) -> Result<MemoryStats, ApiError> {
    Ok(app.engine.memory()?)
}

/// The GPUs of the machine, and why there is none to use.
#[tauri::command(async)]
pub(crate) fn devices(app: OpenApp) -> Result<DeviceList, ApiError> {
    Ok(app.engine.devices()?)
}

#[tauri::command(async)]
pub(crate) fn release_memory(app: OpenApp) -> Result<Released, ApiError> {
    Ok(app.engine.release()?)
}

/// What a model would take, from its file's header; it is not loaded.
#[tauri::command(async)]
pub(crate) fn plan_model(
    app: OpenApp,
    name: String,
    context: Option<u32>,
) -> Result<MemoryPlan, ApiError> {
    let path = catalog::resolve(&app.history(), &app.data.models_path(), Some(&name))?;
    let limits = MemoryLimits::read(&app.history())?;
    let disk = app.engine.cache_stats()?;
    let stats = app.engine.memory()?;
    let around = Circumstances {
        // As the engine's process sees it: what that holds would be given back for another model.
        machine: stats.planned_machine(),
        is_on_device: stats.is_on_device(),
        host: stats.machine,
        host_bytes: limits.host_bytes,
        threads: EngineConfig::threads_beside_a_window() as u64,
        pool_bytes: limits.pool_bytes,
        reserves_context: reserves_context(&app.history(), &name)?,
        disk: DiskPlan {
            budget_bytes: disk.budget_bytes,
            used_bytes: disk.file_bytes,
            ..DiskPlan::default()
        },
    };
    Ok(plan_of(
        &path,
        context.map(u64::from),
        limits.kv.0,
        &around,
    )?)
}

#[tauri::command(async)]
pub(crate) fn memory_limits(app: OpenApp) -> Result<MemoryLimits, ApiError> {
    Ok(MemoryLimits::read(&app.history())?)
}

/// Keeps the limits and holds them from now on.
#[tauri::command(async)]
pub(crate) fn set_memory_limits(app: OpenApp, limits: MemoryLimits) -> Result<(), ApiError> {
    limits.write(&mut app.history())?;
    Ok(app.engine.limit(limits)?)
}

/// Decides whether a model's pool takes a whole context when the model is loaded.
#[tauri::command(async)]
pub(crate) fn reserve_context(
    app: OpenApp,
    model: String,
    whole_context: bool,
) -> Result<(), ApiError> {
    Ok(app.engine.reserve(model, whole_context)?)
}
