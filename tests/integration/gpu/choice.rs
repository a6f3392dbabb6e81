//! Which device computes, and what is said where it is the CPU.

use std::path::Path;

use engine::TurnEvent;
use serde_json::Value;
use tests::{Cli, Subject, message_for_prompt};

use super::{chat, engine_beside_driver, memory};

/// The command line beside a driver with these properties.
fn cli(home: &Path, driver: &[(&str, &str)]) -> Cli {
    let folder = home.join("driver");
    std::fs::create_dir_all(&folder).expect("folder");
    ptx_driver::install(&folder).expect("the stand-in for the driver");
    let cli = Cli::new(home).with("LD_LIBRARY_PATH", folder);
    driver
        .iter()
        .fold(cli, |cli, (name, value)| cli.with(name, *value))
}

fn reason(list: &[Value]) -> &str {
    list[0]["reason"]
        .as_str()
        .unwrap_or_else(|| panic!("{list:?}"))
}

#[test]
fn why_there_is_no_gpu_is_said() {
    let home = tempfile::tempdir().expect("folder");
    let ask = |driver: &[(&str, &str)]| cli(home.path(), driver).run(&["engine", "devices"]);
    let old = ask(&[("PTX_DRIVER_VERSION", "11040")]);
    assert_eq!(
        reason(&old),
        "the NVIDIA driver is too old: it knows CUDA 11.4, and CUDA 12.0 is needed; install driver 525 or newer"
    );
    assert_eq!(
        reason(&ask(&[("PTX_DRIVER_DEVICES", "0")])),
        "no NVIDIA GPU was found"
    );
    let two = ask(&[("PTX_DRIVER_DEVICES", "2")]);
    assert_eq!(
        two[0]["devices"].as_array().map(Vec::len),
        Some(2),
        "{two:?}"
    );
    assert_eq!(two[0]["devices"][1]["choice"], "cuda:1");
}

#[test]
fn a_gpu_that_cannot_be_used_leaves_the_cpu_to_answer() {
    let home = tempfile::tempdir().expect("folder");
    Subject::TINY.install(&home.path().join("models"));
    let answer = |driver: &[(&str, &str)]| {
        let cli = cli(home.path(), driver);
        let new = cli.run(&["chat", "new"]);
        let id = new[0]["conversation"].as_str().expect("id").to_owned();
        let send = [
            "chat",
            "send",
            &id,
            "Hello",
            "--greedy",
            "--max-tokens",
            "4",
        ];
        let last = cli.run(&send).pop().expect("the end of the turn");
        last["text"]
            .as_str()
            .unwrap_or_else(|| panic!("{last}"))
            .to_owned()
    };
    let without = answer(&[("PTX_DRIVER_DEVICES", "0")]);
    // It falls over in its self-test, or in its trial; it is older than all kernels; its driver is.
    for broken in [
        ("PTX_DRIVER_LAUNCHES", "1"),
        ("PTX_DRIVER_LAUNCHES", "12"),
        ("PTX_DRIVER_COMPUTE_CAPABILITY", "61"),
        ("PTX_DRIVER_VERSION", "11080"),
        // Not even a layer fits.
        ("PTX_DRIVER_MEMORY_BYTES", "300000"),
    ] {
        assert_eq!(answer(&[broken]), without, "{broken:?}");
    }
}

#[test]
fn the_engine_says_what_computes_and_gives_the_gpu_back() {
    let mut chat = chat();
    assert_eq!(chat.engine().devices().expect("devices").devices.len(), 1);
    chat.say("Hello");
    let stats = memory(&chat);
    assert_eq!(stats.device.name.as_deref(), Some("PTX interpreter"));
    let used = stats.device.total_bytes - stats.device.free_bytes;
    let own = stats.weights_bytes + stats.scratch_bytes + stats.pool.reserved_bytes;
    assert!(used >= own && own > 0, "{stats:?}");
    let released = chat.engine().release().expect("released");
    assert!(
        released.was_loaded && released.freed_bytes >= own,
        "{released:?}"
    );
    // The next turn loads it again and goes on from the blocks on disk.
    let reply = chat.say("And then?");
    assert!(reply.prefill.restored > 0);
}

#[test]
fn a_gpu_takes_more_of_a_prompt_at_once_than_the_cpu() {
    let mut chat = chat();
    let text = message_for_prompt(&chat, 140);
    let mut steps = |device: &str| {
        chat.restart_on(device);
        let conversation = chat.new_conversation("");
        chat.conversation = conversation;
        let events = chat.try_to_say(&text);
        let done = |event: &TurnEvent| match event {
            TurnEvent::Prefill { done, .. } if *done > 0 => Some(*done),
            _ => None,
        };
        let mut done: Vec<u32> = events.iter().filter_map(done).collect();
        done.dedup();
        done
    };
    assert_eq!(steps("cuda:0"), [140]);
    assert_eq!(steps("cpu"), [128, 140]);
}

#[test]
fn a_gpu_without_tensor_cores_takes_no_more_at_once_than_it_answers_in_time() {
    let mut chat = chat();
    let text = message_for_prompt(&chat, 140);
    let folder = tempfile::tempdir().expect("folder");
    let old = "export PTX_DRIVER_COMPUTE_CAPABILITY=75";
    chat.restart_as(engine_beside_driver(folder.path(), old));
    let events = chat.try_to_say(&text);
    let is_step = |event: &TurnEvent| matches!(event, TurnEvent::Prefill { done: 128, .. });
    assert!(events.iter().any(is_step), "{events:?}");
    assert!(memory(&chat).device.name.is_some());
}

#[test]
fn the_bench_measures_what_comes_back_from_the_machines_memory() {
    let home = tempfile::tempdir().expect("folder");
    Subject::TINY.install(&home.path().join("models"));
    let rows = cli(home.path(), &[]).run(&["bench", "resume", "--tokens", "150", "--runs", "1"]);
    let of = |state: &str| {
        let row = rows.iter().find(|row| row["state"] == state);
        row.unwrap_or_else(|| panic!("no {state} in {rows:?}"))
    };
    let row = of("in the machine's memory");
    assert!(row["restored"].as_u64() >= Some(64), "{row}");
    assert!(row["restore_bytes_per_s"].as_f64().is_some());
    assert!(row["disk_bytes_per_s"].is_null());
    // Its question alone.
    assert!(row["computed"].as_u64() < Some(110), "{row}");
}

#[test]
fn the_bench_does_not_measure_the_cpu_for_a_gpu_that_was_named() {
    let home = tempfile::tempdir().expect("folder");
    Subject::TINY.install(&home.path().join("models"));
    let cli = cli(home.path(), &[("PTX_DRIVER_DEVICES", "0")]);
    let measure = |device| {
        [
            "bench", "decode", "--tokens", "2", "--runs", "1", "--device", device,
        ]
    };
    let refused = cli.refused(&measure("cuda:0"));
    assert!(refused.contains("no NVIDIA GPU was found"), "{refused}");
    assert!(cli.run(&measure("auto"))[0]["tokens_per_s"].is_number());
}

#[test]
fn the_plan_says_before_loading_what_the_gpu_has_room_for() {
    let home = tempfile::tempdir().expect("folder");
    Subject::TINY.install(&home.path().join("models"));
    let plan = |bytes: &str| {
        let cli = cli(home.path(), &[("PTX_DRIVER_MEMORY_BYTES", bytes)]);
        let name = cli.run(&["models", "list"])[0]["name"].clone();
        let inspected = cli.run(&["models", "inspect", name.as_str().expect("a name")]);
        inspected[0]["plan"].clone()
    };
    let plans = ["200000000", "2000000", "300000"].map(plan);
    let layers = plans
        .each_ref()
        .map(|plan| plan["offload"]["device_layers"].as_u64());
    assert_eq!(layers, [None, Some(1), Some(0)]);
    for plan in &plans {
        assert_eq!(plan["is_on_device"], true);
        assert!(
            plan["host"]["budget_bytes"].as_u64() > Some(1 << 20),
            "{plan}"
        );
    }
    assert_eq!(plans[1]["offload"]["num_layers"], 2);
}

#[test]
fn a_model_that_does_not_fit_has_its_first_layers_on_the_gpu_and_goes_on_after_a_restart() {
    let mut chat = chat();
    let folder = tempfile::tempdir().expect("folder");
    let program = engine_beside_driver(folder.path(), "export PTX_DRIVER_MEMORY_BYTES=2000000");
    let mut replies = Vec::new();
    for _ in 0..2 {
        chat.restart_as(program.clone());
        replies.push(chat.say("Hello, and then?"));
        let device = memory(&chat).device;
        assert_eq!(device.num_layers, Some(1), "{device:?}");
        let reason = device.reason.expect("why not all of them");
        assert!(reason.contains("MiB free"), "{reason}");
    }
    assert_eq!(
        replies[0].prefill.restored, 0,
        "of another number of layers"
    );
    assert!(replies[1].prefill.restored > 0);
}

#[test]
fn a_driver_that_gives_less_than_it_said_gets_fewer_layers_or_none() {
    let mut chat = chat();
    let folder = tempfile::tempdir().expect("folder");
    let mut layers_with = |withheld: &str| {
        let driver = folder.path().join(withheld);
        std::fs::create_dir(&driver).expect("folder");
        let lines =
            format!("export PTX_DRIVER_MEMORY_BYTES=8000000 PTX_DRIVER_WITHHELD_BYTES={withheld}");
        chat.restart_as(engine_beside_driver(&driver, &lines));
        let conversation = chat.new_conversation("");
        chat.conversation = conversation;
        assert!(!chat.say("Hello, and then?").text.is_empty());
        let device = memory(&chat).device;
        (device.name.is_some(), device.num_layers, device.reason)
    };
    assert_eq!(layers_with("0"), (true, None, None));
    let (is_used, _, reason) = layers_with("5500000");
    assert!(is_used, "{reason:?}");
    let (is_used, _, reason) = layers_with("7900000");
    assert!(!is_used, "{reason:?}");
    let reason = reason.expect("why there is no GPU");
    assert!(reason.contains("there is no memory for"), "{reason}");
}
