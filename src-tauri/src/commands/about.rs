//! What this application is and where it keeps its things.

use engine::{DeviceChoice, DeviceList, DeviceUse, MemoryLimits, machine};
use serde::Serialize;
use ts_rs::TS;

use crate::api_error::ApiError;
use crate::app::OpenApp;

/// Shown in the settings.
#[derive(Debug, Serialize, TS)]
pub struct AppInfo {
    /// Version of the application.
    pub version: &'static str,
    /// The name of the processor or GPU that computes the loaded model, or would compute one.
    pub device: String,
    /// The data folder.
    pub data_dir: String,
    /// Name of the loaded model.
    pub model: Option<String>,
}

#[tauri::command(async)]
pub(crate) fn app_info(app: OpenApp) -> Result<AppInfo, ApiError> {
    let stats = app.engine.memory()?;
    let processor = machine::processor_name().unwrap_or_else(|| "the CPU".to_owned());
    let device = match &stats.model {
        Some(_) => in_use(&stats.device, processor),
        None => chosen(
            MemoryLimits::read(&app.history())?.device,
            &app.engine.devices()?,
            processor,
        ),
    };
    Ok(AppInfo {
        version: env!("CARGO_PKG_VERSION"),
        device,
        data_dir: app.data.path().display().to_string(),
        model: stats.model,
    })
}

/// The name of the device that computes the loaded model.
fn in_use(device: &DeviceUse, processor: String) -> String {
    match (&device.name, device.num_layers) {
        (Some(gpu), None) => gpu.clone(),
        (Some(gpu), Some(_)) => format!("{gpu} and {processor}"),
        (None, _) => processor,
    }
}

/// The name of the device that would compute a model; if several GPUs are present and none is chosen, the one with the
/// most memory.
fn chosen(choice: DeviceChoice, list: &DeviceList, processor: String) -> String {
    let gpu = match choice {
        DeviceChoice::Cpu => None,
        DeviceChoice::Cuda(_) => list.devices.iter().find(|device| device.choice == choice),
        DeviceChoice::Auto => list
            .devices
            .iter()
            .rev()
            .max_by_key(|device| device.memory_bytes),
    };
    gpu.map_or(processor, |gpu| gpu.name.clone())
}

#[cfg(test)]
mod tests {
    use engine::{DeviceChoice, DeviceEntry, DeviceList, DeviceUse};

    use super::{chosen, in_use};

    #[test]
    fn what_computes_is_named_as_it_is() {
        let processor = || "Some CPU".to_owned();
        let on = |name: Option<&str>, num_layers| DeviceUse {
            name: name.map(str::to_owned),
            num_layers,
            ..DeviceUse::default()
        };
        assert_eq!(in_use(&on(None, None), processor()), "Some CPU");
        assert_eq!(in_use(&on(Some("RTX"), None), processor()), "RTX");
        assert_eq!(
            in_use(&on(Some("RTX"), Some(9)), processor()),
            "RTX and Some CPU"
        );
    }

    #[test]
    fn what_would_compute_is_what_was_chosen_and_is_there() {
        let gpu = |ordinal, name: &str, memory_bytes| DeviceEntry {
            choice: DeviceChoice::Cuda(ordinal),
            name: name.to_owned(),
            memory_bytes,
        };
        let list = DeviceList {
            devices: vec![gpu(0, "Small", 1), gpu(1, "Large", 2), gpu(2, "Twin", 2)],
            reason: None,
        };
        let name = |choice| chosen(choice, &list, "Some CPU".to_owned());
        assert_eq!(name(DeviceChoice::Auto), "Large");
        assert_eq!(name(DeviceChoice::Cuda(0)), "Small");
        assert_eq!(name(DeviceChoice::Cuda(7)), "Some CPU");
        assert_eq!(name(DeviceChoice::Cpu), "Some CPU");
        let none = chosen(
            DeviceChoice::Auto,
            &DeviceList::default(),
            "Some CPU".to_owned(),
        );
        assert_eq!(none, "Some CPU");
    }
}
