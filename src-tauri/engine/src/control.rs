//! The control channel: another process of the same user asks the one that holds the data folder for its memory.
//!
//! One process uses a data folder at a time, so a command line cannot open it beside the application. The holder listens
//! on a loopback port of the system's choice and writes `control.json` into the folder, for its owner's eyes only:
//! `{"port":41234,"token":"64 hex digits"}`. A client sends one line, `TOKEN release` or `TOKEN memory`, and gets one line
//! of JSON: an [`Answer`]. Everything else is closed without an answer. Lines, times and connections are bounded.

use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::request::{Answer, Envelope, Request};
use crate::{Error, Result};

const FILE: &str = "control.json";
/// Longest line a client may send, longest answer a client takes, in bytes.
const MOST_LINE: usize = 256;
const MOST_ANSWER: u64 = 64 << 10;
/// A client that has not said its line after this long is let go.
const PATIENCE: Duration = Duration::from_secs(2);
/// A release waits for the reply that is being written.
const LONGEST_ANSWER: Duration = Duration::from_secs(600);

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
}

impl Command {
    fn word(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Memory => "memory",
        }
    }

    fn request(self) -> Request {
        match self {
            Self::Release => Request::Release,
            Self::Memory => Request::Memory,
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
    /// Begins to listen for the process that holds `folder`.
    pub(crate) fn listen(folder: &Path, requests: Sender<Envelope>) -> std::io::Result<Self> {
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
                for stream in listener.incoming() {
                    if ended.load(Ordering::SeqCst) {
                        return;
                    }
                    // One at a time; whoever breaks off is nobody's loss.
                    if let Err(error) = stream.and_then(|stream| serve(stream, &token, &requests)) {
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
    stream.set_read_timeout(Some(LONGEST_ANSWER))?;
    stream.write_all(format!("{token} {}\n", command.word()).as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream.take(MOST_ANSWER)).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// Reads a line, asks the engine, answers.
fn serve(stream: TcpStream, token: &str, requests: &Sender<Envelope>) -> std::io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let line = line_of(&stream)?;
    let Some(command) = understood(&line, token) else {
        return Ok(());
    };
    let (answers, answer) = channel();
    let request = command.request();
    let answer = match requests.send(Envelope { request, answers }) {
        Ok(()) => answer
            .recv()
            .unwrap_or_else(|_| Answer::from(&Error::Stopped)),
        Err(_) => Answer::from(&Error::Stopped),
    };
    let mut text = serde_json::to_string(&answer)?;
    text.push('\n');
    (&stream).write_all(text.as_bytes())
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
    [Command::Release, Command::Memory]
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
