//! `cargo xtask run`: ready the machine, build what is needed, open the window.

use std::path::PathBuf;
use std::process::Command;

use crate::workspace::{Workspace, data_folder};
use crate::{Result, model, process, setup, ui};

/// Builds and runs the app, handing it `args`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    setup::setup(false)?;
    let workspace = Workspace::open()?;
    model::fetch(&chosen_data_folder(args)?)?;
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
    if no_display() {
        return Err(format!(
            "the app is built, but there is no display to open its window on. Run {} in a desktop session, \
             or `xvfb-run -a cargo xtask run`",
            app.display()
        ));
    }
    println!("Opening {}", app.display());
    process::run(Command::new(app).args(args))
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

fn no_display() -> bool {
    cfg!(target_os = "linux")
        && ["DISPLAY", "WAYLAND_DISPLAY"]
            .iter()
            .all(|name| std::env::var_os(name).is_none_or(|value| value.is_empty()))
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
