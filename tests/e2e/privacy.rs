//! Encryption in the real window: turned on in the settings, asked for at the next start.

use std::path::Path;

use tests::prose;

use crate::resume::prepare;
use crate::window::Window;

const CANARY: &str = "the canary of Zanzibar sings at midnight";

/// Whether a file of the data folder, models aside, holds the canary.
fn is_on_disk(folder: &Path) -> bool {
    let entries = std::fs::read_dir(folder).expect("folder").flatten();
    let mut paths = entries.map(|entry| entry.path());
    paths.any(|path| match path.is_dir() {
        true => !path.ends_with("models") && is_on_disk(&path),
        false => {
            let bytes = std::fs::read(&path).unwrap_or_default();
            let mut windows = bytes.windows(CANARY.len());
            windows.any(|window| window == CANARY.as_bytes())
        }
    })
}

#[tokio::test]
async fn the_real_window_encrypts_its_conversations_and_asks_for_the_passphrase() {
    let home = tempfile::tempdir().expect("folder");
    prepare(home.path());
    let folder = home.path().join("reprise");

    let window = Window::open(home.path()).await;
    window.click("conversation-item").await;
    let first = window.say(&format!("{CANARY} {}", prose(0, 60))).await;
    assert!(is_on_disk(&folder), "it is there to be found");
    window.click("settings-open").await;
    window.click("privacy-ask-on").await;
    window.write("passphrase-new", "open sesame").await;
    window.write("passphrase-again", "open sesame").await;
    window.click("privacy-decide").await;
    // Blocks that are left at the end are rewritten after the next start.
    window.find("privacy-change").await;
    window.quit().await;
    assert!(!is_on_disk(&folder));

    let window = Window::start(home.path()).await;
    window.write("passphrase", "close sesame").await;
    window.click("unlock").await;
    window.find_css("[role='alert']").await;
    window.write("passphrase", "open sesame").await;
    window.click("unlock").await;
    window.click("conversation-item").await;
    let second = window.say("And then?").await.prefill.expect("counts");
    let computed = first.prefill.expect("counts").computed;
    assert!(second.restored >= computed, "{second:?}");
    window.quit().await;
    assert!(!is_on_disk(&folder));
}
