//! Runs `reprise-cli` on a pseudo-terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Timeout of every wait.
const LONGEST: Duration = Duration::from_secs(120);

/// A pseudo-terminal with a running program.
pub struct PseudoTerminal {
    child: Child,
    keys: File,
    output: Receiver<Vec<u8>>,
    /// All text written to the terminal.
    pub seen: String,
    /// Number of bytes of `seen` that earlier waits have consumed.
    num_waited: usize,
    /// Bytes of an incomplete character.
    unread: Vec<u8>,
}

impl PseudoTerminal {
    /// Starts a program on a new pseudo-terminal.
    pub fn start(mut command: Command) -> Self {
        let (controller, terminal) = open();
        let end = || Stdio::from(terminal.try_clone().expect("a terminal"));
        command
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .env("TERM", "xterm");
        // SAFETY: both are system calls that may be made between fork and exec, and touch no memory of this process.
        unsafe {
            command.pre_exec(|| {
                if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let child = command.spawn().expect("reprise-cli starts");
        drop((terminal, command));
        let keys = File::from(controller);
        let mut screen = keys.try_clone().expect("a terminal");
        let (written, output) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Reading fails once the last program on the terminal has ended.
            while let Ok(num_bytes @ 1..) = screen.read(&mut bytes) {
                if written.send(bytes[..num_bytes].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self {
            child,
            keys,
            output,
            seen: String::new(),
            num_waited: 0,
            unread: Vec::new(),
        }
    }

    /// Sends key presses.
    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("keys");
    }

    /// Waits until `text` is written after the output of earlier waits.
    pub fn wait_for(&mut self, text: &str) {
        self.wait_until(text, |unseen| Some(unseen.find(text)? + text.len()));
    }

    /// Waits until `num_bytes` are written after the output of earlier waits.
    pub fn wait_for_more(&mut self, num_bytes: usize) {
        let what = format!("{num_bytes} bytes");
        self.wait_until(&what, |unseen| {
            (unseen.len() >= num_bytes).then_some(unseen.len())
        });
    }

    fn wait_until(&mut self, what: &str, end: impl Fn(&str) -> Option<usize>) {
        let deadline = Instant::now() + LONGEST;
        loop {
            if let Some(end) = end(&self.seen[self.num_waited..]) {
                self.num_waited += end;
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(bytes) => self.take(&bytes),
                Err(error) => panic!("no {what:?} ({error}) in {:?}", self.seen),
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.unread) {
            Ok(_) => self.unread.len(),
            Err(error) => error.valid_up_to(),
        };
        let text = String::from_utf8_lossy(&self.unread[..whole]).into_owned();
        self.seen.push_str(&text);
        self.unread.drain(..whole);
    }

    /// Waits for the program's end; returns its status and all output.
    pub fn end(mut self) -> (ExitStatus, String) {
        let deadline = Instant::now() + LONGEST;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("ended") {
                break status;
            }
            assert!(
                Instant::now() < deadline,
                "it does not end: {:?}",
                self.seen
            );
            while let Ok(bytes) = self.output.recv_timeout(Duration::from_millis(20)) {
                self.take(&bytes);
            }
        };
        while let Ok(bytes) = self.output.recv_timeout(Duration::from_millis(200)) {
            self.take(&bytes);
        }
        (status, std::mem::take(&mut self.seen))
    }
}

/// Opens a new pseudo-terminal: the controller's end and the program's end.
fn open() -> (OwnedFd, OwnedFd) {
    let (mut controller, mut terminal) = (-1, -1);
    // SAFETY: the two places live as long as the call; the others may be null.
    let opened = unsafe {
        libc::openpty(
            &mut controller,
            &mut terminal,
            std::ptr::null_mut(),
            std::ptr::null(),
            std::ptr::null(),
        )
    };
    assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: both were just opened, and nothing else owns them.
    let owned = [controller, terminal].map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    // No other process may inherit the controller's end: it would keep the terminal open. SAFETY: a call on a file
    // descriptor of ours.
    let set = unsafe { libc::fcntl(controller, libc::F_SETFD, libc::FD_CLOEXEC) };
    assert_eq!(set, 0);
    let [controller, terminal] = owned;
    (controller, terminal)
}

impl Drop for PseudoTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
