//! The engine's program: starting it, hearing that it is ready, and its end.

use std::io::{BufReader, ErrorKind};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use store::Passphrase;

use super::{Opening, PROTOCOL, Reply, VERSION, frame};
use crate::{Error, Result};

/// How long it may take to say hello, and to end once it was told to.
const LONGEST_FAREWELL: Duration = Duration::from_secs(30);

/// How the engine's process is started.
#[derive(Clone, Debug)]
pub struct EngineProcess {
    /// `reprise-engine`, of the same version.
    pub program: PathBuf,
    /// The data folder, whose lock the caller holds.
    pub data_folder: PathBuf,
    /// Threads to compute with.
    pub threads: usize,
    /// What unlocks the history, if a passphrase does. It goes over the stream, where nobody else reads.
    pub passphrase: Option<Passphrase>,
}

impl EngineProcess {
    /// The program beside the running one.
    ///
    /// # Errors
    /// When the system does not say where the running program is.
    pub fn beside(
        data_folder: PathBuf,
        threads: usize,
        passphrase: Option<&Passphrase>,
    ) -> Result<Self> {
        let own = std::env::current_exe().map_err(|error| {
            Error::Process(format!("where Reprise is installed is not known: {error}"))
        })?;
        Ok(Self {
            program: own.with_file_name(format!("reprise-engine{}", std::env::consts::EXE_SUFFIX)),
            data_folder,
            threads,
            passphrase: passphrase.cloned(),
        })
    }

    /// Starts the process; its streams.
    pub(super) fn start(&self) -> Result<(Child, ChildStdin, BufReader<ChildStdout>)> {
        let mut command = Command::new(&self.program);
        command
            .arg("--data-dir")
            .arg(&self.data_folder)
            .arg("--threads")
            .arg(self.threads.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        // An interrupt from the terminal is the parent's to answer.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        #[cfg(windows)]
        std::os::windows::process::CommandExt::creation_flags(&mut command, CREATE_NO_WINDOW);
        let mut child = command.spawn().map_err(|error| {
            let program = self.program.display();
            Error::Process(match error.kind() {
                ErrorKind::NotFound => format!("{program} is missing; install Reprise again"),
                _ => format!("{program} cannot be started: {error}"),
            })
        })?;
        let (Some(requests), Some(replies)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::Process("the engine has no streams".into()));
        };
        Ok((child, requests, BufReader::new(replies)))
    }
}

/// No console window beside the real one.
#[cfg(windows)]
const CREATE_NO_WINDOW: u32 = 0x0800_0000;

/// Waits until the process has said who it is, lets it open the data folder, and waits until it is ready.
pub(super) fn greet(
    requests: &mut ChildStdin,
    replies: &mut BufReader<ChildStdout>,
    opening: Opening,
) -> Result<()> {
    let mut next = || {
        frame::read::<Reply>(replies)
            .ok()
            .flatten()
            .ok_or_else(|| Error::Process("the engine ended at its start; see its messages".into()))
    };
    match next()? {
        Reply::Hello {
            protocol: PROTOCOL,
            version,
        } if version == VERSION => {}
        Reply::Hello { version, .. } => {
            return Err(Error::Process(format!(
                "the engine is of version {version} and Reprise of {VERSION}; install Reprise again"
            )));
        }
        _ => {
            return Err(Error::Process(
                "the engine does not say who it is; install Reprise again".into(),
            ));
        }
    }
    // One that has ended takes nothing, and says nothing either.
    let _ = frame::write(requests, &opening);
    match next()? {
        Reply::Ready => Ok(()),
        Reply::Refused { code, message } => Err(Error::Remote { code, message }),
        _ => Err(Error::Process("the engine does not get ready".into())),
    }
}

/// The process, which does not outlive this.
pub(super) struct Reaped(pub(super) Child);

impl Reaped {
    /// Waits for its end, and brings it about when it takes too long.
    pub(super) fn end(&mut self) -> std::io::Result<std::process::ExitStatus> {
        let deadline = Instant::now() + LONGEST_FAREWELL;
        while Instant::now() < deadline {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status);
            }
            thread::sleep(Duration::from_millis(5));
        }
        self.0.kill()?;
        self.0.wait()
    }
}

impl Drop for Reaped {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// A job that ends the process with this one, however this one ends.
#[cfg(windows)]
pub(super) fn job_of(child: &Child) -> Result<win32job::Job> {
    use std::os::windows::io::AsRawHandle;

    let failed = |error: win32job::JobError| {
        Error::Process(format!("the engine cannot be bound to Reprise: {error}"))
    };
    let mut limits = win32job::ExtendedLimitInfo::new();
    limits.limit_kill_on_job_close();
    let job = win32job::Job::create_with_limit_info(&limits).map_err(failed)?;
    job.assign_process(child.as_raw_handle() as isize)
        .map_err(failed)?;
    Ok(job)
}
