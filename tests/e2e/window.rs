//! One run of the application, as a person at the screen sees it.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fantoccini::elements::Element;
use fantoccini::wd::Capabilities;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use store::Prefill;
use tests::processes;

/// How long a reply, or the start of the application, may take on a slow machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The application's window and the driver that moves it.
pub struct Window {
    client: Client,
    driver: Child,
    folder: PathBuf,
}

/// What stands on the page under one reply.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownReply {
    pub id: String,
    pub state: String,
    pub text: String,
    pub prefill: Option<Prefill>,
}

impl Window {
    /// Starts the application over `data_dir` and waits until a message can be written.
    pub async fn open(data_dir: &Path) -> Self {
        let window = Self::start(data_dir).await;
        window.find("composer").await;
        window
    }

    /// Starts the application, whatever its page then shows.
    pub async fn start(data_dir: &Path) -> Self {
        let app = std::env::var("REPRISE_TEST_APP")
            .expect("REPRISE_TEST_APP names the application: run `cargo xtask test`");
        let folder = data_dir.join("reprise");
        let port = free_port();
        let driver = Command::new("WebKitWebDriver")
            .arg(format!("--port={port}"))
            .env("TAURI_WEBVIEW_AUTOMATION", "true")
            .env("XDG_DATA_HOME", data_dir)
            .env("XDG_CONFIG_HOME", data_dir)
            .env("XDG_CACHE_HOME", data_dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("WebKitWebDriver is installed");
        let options = json!({ "binary": app, "args": ["--data-dir", folder] });
        let capabilities: Capabilities = [("webkitgtk:browserOptions".to_owned(), options)]
            .into_iter()
            .collect();
        let address = format!("http://127.0.0.1:{port}");
        let start = Instant::now();
        let client = loop {
            let mut builder = ClientBuilder::new(HttpConnector::new());
            match builder
                .capabilities(capabilities.clone())
                .connect(&address)
                .await
            {
                Ok(client) => break client,
                Err(error) if start.elapsed() > PATIENCE => panic!("no window: {error}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        };
        Self {
            client,
            driver,
            folder,
        }
    }

    /// Quits the application as logging out does, and waits until it has saved and is gone. (The end of a driver's
    /// session ends the page, not the application.)
    pub async fn quit(self) {
        self.end("-TERM").await;
    }

    async fn end(&self, signal: &str) {
        kill(signal, self.process().expect("the application runs"));
        let start = Instant::now();
        while self.process().or(self.engine()).is_some() {
            assert!(start.elapsed() < PATIENCE, "the application does not end");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The application's process: the one whose command line names this data folder.
    fn process(&self) -> Option<u32> {
        processes("reprise", &self.folder).first().copied()
    }

    /// The process of the application's engine.
    pub fn engine(&self) -> Option<u32> {
        processes("reprise-engine", &self.folder).first().copied()
    }

    /// Kills the application, as a crash does, and waits until it and its engine are gone.
    pub async fn kill(self) {
        self.end("-KILL").await;
    }

    /// The element with a test id, waited for.
    pub async fn find(&self, id: &str) -> Element {
        self.find_css(&format!("[data-testid='{id}']")).await
    }

    /// The first element of a selector, waited for.
    pub async fn find_css(&self, selector: &str) -> Element {
        let wait = self.client.wait().at_most(PATIENCE);
        match wait.for_element(Locator::Css(selector)).await {
            Ok(element) => element,
            Err(error) => panic!(
                "{selector} did not appear: {error}; the page says: {}",
                self.page().await
            ),
        }
    }

    /// Clicks what has a test id; by script, since some controls show only under the pointer.
    pub async fn click(&self, id: &str) {
        self.click_css(&format!("[data-testid='{id}']")).await;
    }

    /// Clicks the first element of a selector.
    pub async fn click_css(&self, selector: &str) {
        self.find_css(selector).await;
        self.script(
            "document.querySelector(arguments[0]).click()",
            json!(selector),
        )
        .await;
    }

    /// Puts text into a field, as a paste would.
    pub async fn write(&self, id: &str, text: &str) {
        self.find(id).await;
        let script = "const field = document.querySelector(`[data-testid='${arguments[0][0]}']`); field.focus();
            const setter = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(field), 'value').set;
            setter.call(field, arguments[0][1]); field.dispatchEvent(new InputEvent('input', { bubbles: true }));";
        self.script(script, json!([id, text])).await;
    }

    /// Sends a message and waits for the whole reply.
    pub async fn say(&self, text: &str) -> ShownReply {
        let before = self.replies().await.len();
        self.write("composer", text).await;
        self.click("send").await;
        self.next_reply(|replies| replies.len() > before).await
    }

    /// Waits until `changed` holds of the replies on the page and the last one is whole.
    pub async fn next_reply(&self, changed: impl Fn(&[ShownReply]) -> bool) -> ShownReply {
        let start = Instant::now();
        loop {
            let replies = self.replies().await;
            if let Some(last) = replies.last()
                && changed(&replies)
                && last.prefill.is_some()
                && last.state != "generating"
            {
                return last.clone();
            }
            assert!(
                start.elapsed() < PATIENCE,
                "no reply; the page says: {}",
                self.page().await
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The replies on the page, first to last.
    pub async fn replies(&self) -> Vec<ShownReply> {
        let script = "return [...document.querySelectorAll(\"[data-testid='message'][data-role='assistant']\")].map((reply) => {
            const line = reply.querySelector(\"[data-testid='quiet-line']\");
            return { id: reply.dataset.id, state: reply.dataset.state ?? '',
                text: reply.querySelector(\"[data-testid='reply-text']\")?.textContent ?? '',
                counts: line && ['resident', 'restored', 'computed'].map((name) => Number(line.dataset[name])) }; })";
        let replies = self.script(script, Value::Null).await;
        let count = |value: &Value| value.as_u64().unwrap_or_default() as u32;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let replies = replies.as_array().cloned().unwrap_or_default();
        replies
            .iter()
            .map(|reply| ShownReply {
                id: text(&reply["id"]),
                state: text(&reply["state"]),
                text: text(&reply["text"]).trim().to_owned(),
                prefill: reply["counts"].as_array().map(|counts| Prefill {
                    resident: count(&counts[0]),
                    restored: count(&counts[1]),
                    computed: count(&counts[2]),
                }),
            })
            .collect()
    }

    /// Text of the element with a test id.
    pub async fn text(&self, id: &str) -> String {
        self.find(id).await.text().await.expect("text")
    }

    async fn page(&self) -> String {
        self.script("return document.body.innerText", Value::Null)
            .await
            .to_string()
    }

    /// Runs a script in the page and returns its result.
    pub async fn script(&self, script: &str, argument: Value) -> Value {
        self.client
            .execute(script, vec![argument])
            .await
            .expect("script")
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Sends a signal to a process.
pub fn kill(signal: &str, pid: u32) {
    let sent = Command::new("kill")
        .args([signal, &pid.to_string()])
        .status();
    assert!(
        sent.is_ok_and(|status| status.success()),
        "kill {signal} {pid}"
    );
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("address").port()
}
