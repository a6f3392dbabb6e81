//! One window for each data folder: a second start brings the first one's window forward and ends. Another folder is another
//! application, which starts beside it.

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

/// How long a start waits for another one that is just starting, or ending, and saves what it has.
const HANDOVER: Duration = Duration::from_secs(5);
/// Between two looks at it.
const PAUSE: Duration = Duration::from_millis(100);

/// Takes the data folder. Nothing when the window of the process that holds it came forward in its place.
///
/// # Errors
/// When the folder cannot be had, and whoever holds it shows no window.
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

/// Asks the holder of a folder for its window. One that has none, or does not answer, may be starting, ending, the command line or hung.
fn comes_forward(folder: &Path) -> bool {
    let answer = control::ask(folder, Command::Show);
    if let Err(error) = &answer {
        tracing::debug!(%error, "no window comes forward");
    }
    matches!(answer, Ok(Some(Answer::Done)))
}

/// Lets other processes of the user ask for memory and for the window.
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
