//! Encryption from the command line.

use std::process::Output;

use serde_json::{Value, json};

use crate::support::{Folder, counts, lines, long_text, number};

fn with(folder: &Folder, passphrases: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = folder.command(&[&["--json"], arguments].concat());
    command.envs(passphrases.iter().copied());
    command.output().expect("reprise-cli starts")
}

fn last(output: &Output) -> Value {
    lines(std::str::from_utf8(&output.stdout).expect("UTF-8"))
        .pop()
        .expect("a line")
}

const SESAME: (&str, &str) = ("REPRISE_PASSPHRASE", "open sesame");

#[test]
fn encryption_is_turned_on_and_off_and_the_conversation_goes_on() {
    let folder = Folder::with_model();
    let id = folder.conversation();
    folder.send(&id, &long_text());
    let off = json!({ "privacy": "off", "unlocks": null, "blocks_left": 0 });
    assert_eq!(folder.last(&["privacy", "status"]), off);
    let on = with(&folder, &[SESAME], &["privacy", "on"]);
    let encrypted = json!({ "privacy": "on", "unlocks": "passphrase", "blocks_left": 0 });
    assert_eq!(last(&on), encrypted);
    let told = lines(std::str::from_utf8(&on.stdout).expect("UTF-8"));
    assert!(told.len() < 4, "{told:?}");

    let send = [
        "chat",
        "send",
        &id,
        "and then",
        "--greedy",
        "--max-tokens",
        "4",
    ];
    let sent = last(&with(&folder, &[SESAME], &send));
    let [_, restored, computed] = counts(&sent);
    assert!(restored > 200 && computed < 64, "{sent}");
    let verified = last(&with(&folder, &[SESAME], &["cache", "verify"]));
    assert!(number(&verified, "checked") > 2 && number(&verified, "bad") == 0);

    let output = with(&folder, &[SESAME], &["privacy", "off"]);
    assert_eq!(last(&output), off);
    let sent = folder.send(&id, "and again");
    assert!(counts(&sent)[1] > 200, "{sent}");
    assert_eq!(folder.messages(&id).len(), 6);
}

#[test]
fn without_its_passphrase_nothing_is_told() {
    let folder = Folder::with_model();
    folder.conversation();
    assert!(
        with(&folder, &[SESAME], &["privacy", "on"])
            .status
            .success()
    );
    for (passphrases, code) in [
        (&[][..], "locked"),
        (
            &[("REPRISE_PASSPHRASE", "close sesame")][..],
            "wrong_passphrase",
        ),
    ] {
        for command in [["chat", "list"], ["cache", "stats"], ["privacy", "status"]] {
            let output = with(&folder, passphrases, &command);
            assert!(!output.status.success());
            assert_eq!(last(&output)["code"], code, "{command:?}");
        }
    }
    let error = String::from_utf8(folder.run(&["chat", "list"]).stderr).expect("UTF-8");
    assert!(error.contains("REPRISE_PASSPHRASE"), "{error}");
}

#[test]
fn a_new_passphrase_takes_the_place_of_the_old() {
    let folder = Folder::empty();
    assert!(
        with(&folder, &[SESAME], &["privacy", "on"])
            .status
            .success()
    );
    let new = ("REPRISE_NEW_PASSPHRASE", "another one");
    let changed = with(&folder, &[SESAME, new], &["privacy", "passphrase"]);
    assert_eq!(last(&changed)["privacy"], "on");
    let old = with(&folder, &[SESAME], &["chat", "list"]);
    assert_eq!(last(&old)["code"], "wrong_passphrase");
    let said = ("REPRISE_PASSPHRASE", "another one");
    assert!(with(&folder, &[said], &["chat", "list"]).status.success());
}

#[test]
fn a_passphrase_that_is_missing_or_too_short_is_told_and_changes_nothing() {
    let folder = Folder::empty();
    for passphrases in [&[][..], &[("REPRISE_PASSPHRASE", "short")][..]] {
        let refused = with(&folder, passphrases, &["privacy", "on"]);
        assert_eq!(last(&refused)["code"], "invalid_argument");
    }
    assert!(!folder.path().join("key.json").exists());
    assert_eq!(folder.last(&["privacy", "status"])["privacy"], "off");
}

#[test]
fn a_passphrase_unlocks_however_its_letters_are_composed() {
    let folder = Folder::empty();
    let composed = ("REPRISE_PASSPHRASE", "café 結果 pass");
    let decomposed = ("REPRISE_PASSPHRASE", "cafe\u{301} 結果 pass");
    let new = ("REPRISE_NEW_PASSPHRASE", "ganz neue Wo\u{308}rter");
    let is_open = |passphrase| {
        with(&folder, &[passphrase], &["chat", "list"])
            .status
            .success()
    };
    assert!(
        with(&folder, &[decomposed], &["privacy", "on"])
            .status
            .success()
    );
    assert!(is_open(composed) && is_open(decomposed));
    let other = with(
        &folder,
        &[("REPRISE_PASSPHRASE", "cafe 結果 pass")],
        &["chat", "list"],
    );
    assert_eq!(last(&other)["code"], "wrong_passphrase");
    assert!(
        with(&folder, &[composed, new], &["privacy", "passphrase"])
            .status
            .success()
    );
    let new = ("REPRISE_PASSPHRASE", "ganz neue W\u{f6}rter");
    assert!(is_open(new));
    assert!(with(&folder, &[new], &["privacy", "off"]).status.success());
    assert!(folder.json(&["chat", "list"]).is_empty());
}
