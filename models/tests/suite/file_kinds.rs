//! Files that are no whole model, and models whose chat template cannot be used: each is named.

use candle_core::quantized::gguf_file::Value;
use models::tiny::TinyModel;
use models::{Architecture, ChatMessage, Model, Role, inspect};

use crate::broken::{Bench, load, refused};
use crate::support::default_model_path;

#[test]
fn foreign_files_are_named_for_what_they_are() {
    let bench = Bench::new();
    refused(bench.load(b""), "empty");
    refused(bench.load(b"GG"), "ends inside the header");
    refused(bench.load(b"PK\x03\x04 a zip archive"), "a zip archive");
    refused(bench.load(b"<!DOCTYPE html><html>"), "a web page");
    refused(bench.load(b"root:x:0:0:root:/root"), "a text file");
    refused(bench.load(&[0; 4096]), "is incomplete");
    refused(bench.load(b"GGUF\x03\0\0\0"), "ends inside the header");
    refused(bench.load(b"GGUF\x01\0\0\0\0\0\0\0\0\0\0\0"), "version 1");
    refused(load(&bench.dir.path().join("none.gguf")), "no model file");
    refused(load(bench.dir.path()), "a folder");
    let text = |s: &str| Some(Value::String(s.into()));
    for (key, value, why) in [
        ("general.architecture", text("clip"), "is a projector"),
        ("general.type", text("mmproj"), "is a projector"),
        ("general.type", text("adapter"), "is an adapter"),
        (
            "general.architecture",
            text("eagle3"),
            "a draft model (eagle3)",
        ),
        (
            "general.architecture",
            text("gemma3"),
            "architecture is \"gemma3\"",
        ),
        ("split.count", Some(Value::U16(3)), "part 1 of 3"),
    ] {
        refused(bench.with(key, value), why);
    }
    assert!(bench.with("split.count", Some(Value::U16(1))).is_ok());
}

#[test]
fn what_a_file_is_has_a_code_of_its_own() {
    let bench = Bench::new();
    let whole = bench.tiny(&TinyModel::new(Architecture::Llama, 1));
    let code = |name: &str, bytes: &[u8]| {
        let path = bench.dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        inspect(&path).map_or_else(|error| error.code(), |_| "usable")
    };
    assert_eq!(code("a.gguf", &whole), "usable");
    assert_eq!(
        code("a.gguf", &whole[..whole.len() / 2]),
        "model_incomplete"
    );
    assert_eq!(code("a.gguf", &whole[..100]), "model_incomplete");
    assert_eq!(code("a.gguf", b""), "model_empty");
    assert_eq!(code("a.gguf", b"PK\x03\x04...."), "model_not_gguf");
    // Parts that were cut as they lay have a header in the first one only.
    let (first, second) = whole.split_at(whole.len() / 2);
    assert_eq!(code("a-00001-of-00002.gguf", first), "model_part");
    let weights = second.iter().map(|byte| byte | 1).collect::<Vec<_>>();
    assert_eq!(code("a-00002-of-00002.gguf", &weights), "model_part");
    let gone = inspect(&bench.dir.path().join("gone.gguf")).unwrap_err();
    assert_eq!(gone.code(), "model_file_missing");
}

#[cfg(unix)]
#[test]
fn links_to_nothing_and_closed_files_say_so() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let bench = Bench::new();
    let link = bench.dir.path().join("link.gguf");
    symlink(bench.dir.path().join("gone.gguf"), &link).unwrap();
    refused(load(&link), "a link to a file that is not there");
    bench.tiny(&TinyModel::new(Architecture::Llama, 1));
    std::fs::set_permissions(bench.path(), std::fs::Permissions::from_mode(0o000)).unwrap();
    // Nothing is closed to the superuser.
    if std::fs::File::open(bench.path()).is_err() {
        refused(load(&bench.path()), "may not be read by you");
    }
}

#[test]
fn a_truncated_default_model_is_a_partial_download() {
    let bench = Bench::new();
    let bytes = std::fs::read(default_model_path()).unwrap();
    for end in [bytes.len() - 1, bytes.len() / 2, 3_000_000] {
        refused(bench.load(&bytes[..end]), "is incomplete");
    }
}

#[test]
fn a_chat_template_that_cannot_be_used_gives_way_to_a_generic_one_and_is_told() {
    let bench = Bench::new();
    let hello = [ChatMessage {
        role: Role::User,
        content: "Hello",
        tokens: None,
    }];
    let ids = |model: &Model| {
        let lists = model
            .template()
            .tokenize(model.tokenizer(), &hello, "2026-01-31T12:00:00");
        lists.unwrap().concat()
    };
    let whole = bench.with("general.name", None).unwrap();
    assert_eq!(
        (whole.template().note(), &whole.info().warning),
        (None, &None)
    );
    for (template, why) in [
        ("{% if %}", "syntax error"),
        (
            "{{ messages[0].content | no_such_filter }}",
            "no_such_filter",
        ),
        (
            "{{ raise_exception('tools are needed') }}",
            "tools are needed",
        ),
        ("Always the same.", "leaves out"),
        ("", "leaves out"),
    ] {
        let model = bench.with(
            "tokenizer.chat_template",
            Some(Value::String(template.into())),
        );
        let model = model.expect("no refusal");
        let warning = model.info().warning.clone().expect("a warning");
        assert!(warning.contains(why), "{template}: {warning}");
        assert!(warning.contains("ChatML is used instead"), "{warning}");
        assert!(!warning.contains('\n'), "{warning}");
        assert_eq!(inspect(&bench.path()).unwrap().warning, Some(warning));
        // The tiny model's own template is ChatML.
        assert_eq!(ids(&model), ids(&whole));
    }
    // Without ChatML's tokens.
    let plain = bench.changed(|metadata, _| {
        for (key, value) in metadata.iter_mut() {
            match (key.as_str(), value) {
                ("tokenizer.chat_template", value) => *value = Value::U32(7),
                ("tokenizer.ggml.tokens", Value::Array(tokens)) => {
                    for token in tokens.iter_mut() {
                        if matches!(token, Value::String(name) if name == "<|im_start|>") {
                            *token = Value::String("<|other|>".into());
                        }
                    }
                }
                _ => {}
            }
        }
    });
    let plain = plain.expect("no refusal");
    let warning = plain.info().warning.clone().expect("a warning");
    assert!(warning.contains("a plain one is used instead"), "{warning}");
    assert!(
        plain
            .tokenizer()
            .decode(&ids(&plain))
            .contains("User: Hello")
    );
}
