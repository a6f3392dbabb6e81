//! `cargo xtask run`: ready the machine, build what is needed, open the window.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::forecast::{Found, forecast, no_display};
use crate::workspace::{Workspace, data_folder};
use crate::{Result, model, process, setup, ui};

/// Builds and runs the app, handing it `args`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let variable = |name| std::env::var(name).ok();
    let (display, wayland) = (variable("DISPLAY"), variable("WAYLAND_DISPLAY"));
    let is_linux = cfg!(target_os = "linux");
    if let Some(reason) = no_display(is_linux, display.as_deref(), wayland.as_deref()) {
        return Err(reason);
    }
    let data = chosen_data_folder(args)?;
    let workspace = Workspace::open()?;
    say_what_comes(&workspace, &data);
    setup::setup(false)?;
    model::fetch(&data)?;
    ui::install(&workspace)?;
    ui::build(&workspace)?;
    process::run(
        workspace
            .cargo("build")
            .args(["--release", "--locked", "--package", "reprise"])
            .args(["--package", "reprise-engine"])
            .args(["--features", "reprise/custom-protocol"]),
    )?;
    let app = workspace.binary("release", "reprise");
    println!("Opening {}", app.display());
    process::run(Command::new(app).args(args))
}

/// Prints the steps and their estimated time before they begin.
fn say_what_comes(workspace: &Workspace, data: &Path) {
    let found = Found {
        missing_packages: setup::missing(false).len(),
        model: model::is_there(data),
        ui: workspace.ui().join("node_modules").is_dir(),
        app: workspace.binary("release", "reprise").is_file(),
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    println!("Before the window opens, this");
    for line in forecast(found, model::BYTES, processors) {
        println!("  - {line}");
    }
}

/// The folder the app will use: the one of `--data-dir` if it is handed on, else the platform's.
fn chosen_data_folder(args: &[String]) -> Result<PathBuf> {
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "--data-dir" {
            return args
                .next()
                .map(PathBuf::from)
                .ok_or_else(|| "--data-dir needs a folder".to_owned());
        }
        if let Some(dir) = arg.strip_prefix("--data-dir=") {
            return Ok(dir.into());
        }
    }
    data_folder()
}

#[cfg(test)]
mod tests {
    use super::chosen_data_folder;

    #[test]
    fn the_model_goes_where_the_app_will_look() {
        let args = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        let expected = std::path::PathBuf::from("elsewhere");
        assert_eq!(
            chosen_data_folder(&args(&["--data-dir", "elsewhere"])),
            Ok(expected.clone())
        );
        assert_eq!(
            chosen_data_folder(&args(&["--data-dir=elsewhere"])),
            Ok(expected)
        );
        assert!(chosen_data_folder(&args(&["--data-dir"])).is_err());
    }
}
