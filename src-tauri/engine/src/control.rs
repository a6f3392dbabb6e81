//! The control channel: another process of the same user asks the one that holds the data folder for its memory.
//!
//! One process uses a data folder at a time, so a command line cannot open it beside the application. The holder listens
//! on a loopback port of the system's choice and writes `control.json` into the folder, for its owner's eyes only:
//! `{"port":41234,"token":"64 hex digits"}`. A client sends one line, `TOKEN release` or `TOKEN memory`, and gets one line
//! of JSON: an [`Answer`]. `TOKEN show` asks for its window. Everything else is closed without an answer. Lines, times and
//! connections are bounded.

use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::request::{Answer, Question, Request};
use crate::{Error, Result};

const FILE: &str = "control.json";
/// Longest line a client may send, longest answer a client takes, in bytes.
const MOST_LINE: usize = 256;
const MOST_ANSWER: u64 = 64 << 10;
/// A client that has not said its line after this long is let go.
const PATIENCE: Duration = Duration::from_secs(2);
/// A release waits for the reply that is being written.
const LONGEST_ANSWER: Duration = Duration::from_secs(600);
/// Longest wait for the answer to `show`; a window that responds comes forward at once.
const LONGEST_SHOW: Duration = Duration::from_secs(4);
/// Most commands that wait for their answers at one time; further ones are closed without an answer.
const MOST_WAITING: usize = 8;

/// What the file holds.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Address {
    port: u16,
    token: String,
}

/// What can be asked from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Give memory back.
    Release,
    /// Say what memory is used for.
    Memory,
    /// Bring the window forward.
    Show,
}

impl Command {
    fn word(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Memory => "memory",
            Self::Show => "show",
        }
    }

    /// The request to the engine; `None` if the engine does not handle the command.
    pub(crate) fn request(self) -> Option<Request> {
        match self {
            Self::Release => Some(Request::Release),
            Self::Memory => Some(Question::Memory.into()),
            Self::Show => None,
        }
    }

    /// Longest wait for its answer.
    fn patience(self) -> Duration {
        match self {
            Self::Release | Self::Memory => LONGEST_ANSWER,
            Self::Show => LONGEST_SHOW,
        }
    }
}

/// Listens for as long as it lives; then the port and the file are gone.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
    port: u16,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Starts listening on behalf of the process that holds `folder`. `take` receives each command with the sender for
    /// its answer, and must not block until the answer.
    ///
    /// # Errors
    /// When no port is available or the file cannot be written.
    pub fn listen(
        folder: &Path,
        take: impl Fn(Command, Sender<Answer>) + Send + 'static,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let token = token();
        let path = folder.join(FILE);
        write_private(
            &path,
            &Address {
                port,
                token: token.clone(),
            },
        )?;
        let ends = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&ends);
        let thread = std::thread::Builder::new()
            .name("control".into())
            .spawn(move || {
                let waiting = Arc::new(AtomicUsize::new(0));
                for stream in listener.incoming() {
                    if ended.load(Ordering::SeqCst) {
                        return;
                    }
                    // Connections are served one at a time; a connection that fails is dropped.
                    let served = stream.and_then(|stream| serve(stream, &token, &take, &waiting));
                    if let Err(error) = served {
                        tracing::debug!(%error, "a control connection broke off");
                        // No more files may be open: not again at once.
                        std::thread::sleep(Duration::from_millis(10));
                    }
                }
            })?;
        Ok(Self {
            path,
            port,
            ends,
            thread: Some(thread),
        })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // First the file, so that nobody comes any more.
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(%error, path = %self.path.display(), "the control file stays");
        }
        self.ends.store(true, Ordering::SeqCst);
        // Wakes the thread, which then sees that it ends. It is not waited for when that fails.
        let woken = TcpStream::connect_timeout(&address(self.port), PATIENCE);
        if let (Ok(_), Some(thread)) = (woken, self.thread.take()) {
            let _ = thread.join();
        }
    }
}

/// Asks the process that holds `folder`. `None` when no process listens there.
///
/// # Errors
/// [`Error::Control`] when something listens there and does not answer as it should; what the process answers.
pub fn ask(folder: &Path, command: Command) -> Result<Option<Answer>> {
    let path = folder.join(FILE);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::Control(format!("{}: {error}", path.display()))),
    };
    let Ok(found) = serde_json::from_str::<Address>(&text) else {
        return Err(Error::Control(format!(
            "{} cannot be read; delete it, and start Reprise again if it runs",
            path.display()
        )));
    };
    // A process that was killed leaves its file behind.
    let Ok(stream) = TcpStream::connect_timeout(&address(found.port), PATIENCE) else {
        return Ok(None);
    };
    let answer = exchange(stream, &found.token, command).map_err(|error| {
        Error::Control(format!(
            "whatever listens on port {} gave no answer ({error}); if Reprise is not running, delete {}",
            found.port,
            path.display()
        ))
    })?;
    match answer {
        Answer::Error { code, message } => Err(Error::Remote { code, message }),
        answer => Ok(Some(answer)),
    }
}

fn exchange(mut stream: TcpStream, token: &str, command: Command) -> std::io::Result<Answer> {
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_read_timeout(Some(command.patience()))?;
    stream.write_all(format!("{token} {}\n", command.word()).as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream.take(MOST_ANSWER)).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// Reads a line and passes its command to `take`. Another thread waits for the answer, since a release may take as long
/// as a reply and `show` must be served meanwhile.
fn serve(
    stream: TcpStream,
    token: &str,
    take: &impl Fn(Command, Sender<Answer>),
    waiting: &Arc<AtomicUsize>,
) -> std::io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let line = line_of(&stream)?;
    let Some(command) = understood(&line, token) else {
        return Ok(());
    };
    if waiting.fetch_add(1, Ordering::SeqCst) >= MOST_WAITING {
        waiting.fetch_sub(1, Ordering::SeqCst);
        return Ok(());
    }
    let (answers, answer) = channel();
    take(command, answers);
    let waiting = Arc::clone(waiting);
    let wait = move || -> std::io::Result<()> {
        let answer = answer
            .recv()
            .unwrap_or_else(|_| Answer::from(&Error::Stopped));
        waiting.fetch_sub(1, Ordering::SeqCst);
        let mut text = serde_json::to_string(&answer)?;
        text.push('\n');
        (&stream).write_all(text.as_bytes())
    };
    let answering = std::thread::Builder::new().name("control answer".into());
    answering.spawn(move || {
        if let Err(error) = wait() {
            tracing::debug!(%error, "nobody takes an answer of the control channel");
        }
    })?;
    Ok(())
}

/// What a client sends, up to the end of its line; cut off where it is too long or takes too long altogether.
fn line_of(mut stream: &TcpStream) -> std::io::Result<String> {
    let deadline = Instant::now() + PATIENCE;
    let mut line = Vec::new();
    let mut bytes = [0; MOST_LINE];
    while line.len() < MOST_LINE && line.last() != Some(&b'\n') {
        let left = deadline.saturating_duration_since(Instant::now());
        // A timeout of nothing is not allowed.
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match stream.read(&mut bytes[line.len()..])? {
            0 => break,
            read => line.extend_from_slice(&bytes[line.len()..][..read]),
        }
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

/// The command of a whole line that begins with the token.
fn understood(line: &str, token: &str) -> Option<Command> {
    let (said, word) = line.strip_suffix('\n')?.split_once(' ')?;
    if !same(said.as_bytes(), token.as_bytes()) {
        return None;
    }
    [Command::Release, Command::Memory, Command::Show]
        .into_iter()
        .find(|command| command.word() == word)
}

/// Whether two texts are equal, in a time that does not tell where they differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

/// 64 hex digits nobody can guess: a keyed hash under keys that the system drew for this process.
fn token() -> String {
    let keys = RandomState::new();
    (0..4u64)
        .map(|i| format!("{:016x}", keys.hash_one(i)))
        .collect()
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Readable by its owner only, and never half-written: temporary file, then rename.
fn write_private(path: &Path, address: &Address) -> std::io::Result<()> {
    let temporary = path.with_extension("json.new");
    // What an earlier process left may have another mode.
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    let mut file = options.open(&temporary)?;
    file.write_all(&serde_json::to_vec(address)?)?;
    drop(file);
    std::fs::rename(&temporary, path)
}

#[cfg(test)]
mod tests;
