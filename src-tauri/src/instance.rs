//! One instance per data folder: a second start brings the window of the first one forward and exits. An instance on
//! another folder runs beside it.

use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use engine::Answer;
use engine::control::{self, Command, Control};
use store::{DataFolder, Error};
use tauri::{AppHandle, Manager};

use crate::api_error::ApiError;
use crate::app::Running;
use crate::window;

/// How long a start waits for another instance that is starting, or is saving before it exits.
const HANDOVER: Duration = Duration::from_secs(5);
/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// Locks the data folder. `None` if another process holds it and brought its window forward.
///
/// # Errors
/// When the folder cannot be locked and the process that holds it shows no window.
pub(crate) fn take(data_dir: Option<PathBuf>) -> Result<Option<DataFolder>, ApiError> {
    let folder = DataFolder::locate(data_dir.clone())?;
    let start = Instant::now();
    loop {
        match DataFolder::open(data_dir.clone()) {
            Err(Error::AlreadyRunning { .. }) if start.elapsed() < HANDOVER => {
                if comes_forward(&folder) {
                    return Ok(None);
                }
                thread::sleep(PAUSE);
            }
            opened => return Ok(Some(opened?)),
        }
    }
}

/// Asks the process that holds a folder to show its window. If it does not, it may be starting, exiting, hung or the
/// command line.
fn comes_forward(folder: &Path) -> bool {
    let answer = control::ask(folder, Command::Show);
    if let Err(error) = &answer {
        tracing::debug!(%error, "no window comes forward");
    }
    matches!(answer, Ok(Some(Answer::Done)))
}

/// Serves requests of the user's other processes to release memory and to show the window.
pub(crate) fn listen(handle: AppHandle, folder: &Path) {
    let running = handle.clone();
    let take = move |command, answers: Sender<Answer>| match command {
        Command::Show => window::raise(&handle, move || drop(answers.send(Answer::Done))),
        command => match handle.state::<Running>().app() {
            Ok(app) => app.engine.take(command, answers),
            Err(ApiError { code, message }) => drop(answers.send(Answer::Error { code, message })),
        },
    };
    match Control::listen(folder, take) {
        Ok(control) => running.state::<Running>().keep(control),
        Err(error) => tracing::warn!(%error, "nothing can be asked for from outside"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Sender;
    use std::time::Instant;

    use engine::Answer;
    use engine::control::{Command, Control};
    use store::DataFolder;

    use super::{HANDOVER, take};

    #[test]
    fn a_folder_whose_holder_shows_its_window_is_left_to_it_at_once() {
        let home = tempfile::tempdir().expect("a folder");
        let first = take(Some(home.path().to_owned())).expect("taken");
        let shows = |command, answers: Sender<Answer>| {
            assert_eq!(command, Command::Show);
            drop(answers.send(Answer::Done));
        };
        let control = Control::listen(home.path(), shows).expect("a port");
        let start = Instant::now();
        let second = take(Some(home.path().to_owned())).expect("left");
        assert!(second.is_none() && start.elapsed() < HANDOVER);
        let other = tempfile::tempdir().expect("a folder");
        assert!(
            take(Some(other.path().to_owned()))
                .expect("taken")
                .is_some()
        );
        drop((first, control));
        assert!(take(Some(home.path().to_owned())).expect("free").is_some());
    }

    #[test]
    fn a_folder_whose_holder_has_no_window_is_waited_for_and_then_refused() {
        let home = tempfile::tempdir().expect("a folder");
        let holder = DataFolder::open(Some(home.path().to_owned())).expect("taken");
        let start = Instant::now();
        let refused = take(Some(home.path().to_owned())).expect_err("refused");
        assert_eq!(refused.code, "busy");
        assert!(start.elapsed() >= HANDOVER);
        drop(holder);
    }
}
