use std::time::{Duration, Instant};

use store::{DataFolder, Error};

#[test]
fn a_second_opening_says_already_running_and_names_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let first = DataFolder::open(Some(path.clone())).unwrap();
    let error = DataFolder::open(Some(path.clone())).unwrap_err();
    assert!(matches!(&error, Error::AlreadyRunning { folder } if *folder == path));
    assert!(
        error.to_string().contains(path.to_str().unwrap()),
        "{error}"
    );
    drop(first);
    DataFolder::open(Some(path)).unwrap();
}

#[test]
fn a_start_waits_for_one_that_is_just_ending_and_not_for_one_that_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = Some(folder.path().join("data"));
    let first = DataFolder::open(path.clone()).unwrap();
    let ends = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        drop(first);
    });
    let second = DataFolder::open_when_free(path.clone(), Duration::from_secs(60)).unwrap();
    ends.join().unwrap();
    let patience = Duration::from_millis(150);
    let start = Instant::now();
    let error = DataFolder::open_when_free(path, patience).unwrap_err();
    assert!(matches!(error, Error::AlreadyRunning { .. }));
    assert!(start.elapsed() >= patience);
    drop(second);
}

#[test]
fn two_folders_can_be_used_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let one = DataFolder::open(Some(folder.path().join("one"))).unwrap();
    let two = DataFolder::open(Some(folder.path().join("two"))).unwrap();
    assert_ne!(one.history_path(), two.history_path());
    for path in [one.path(), &one.kv_path(), &one.models_path()] {
        assert!(path.is_absolute() && path.is_dir());
    }
}

#[cfg(unix)]
#[test]
fn folders_are_0700_and_files_0600() {
    use crate::support::mode;
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let open_mode = std::fs::Permissions::from_mode(0o755);
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    std::fs::set_permissions(&empty, open_mode.clone()).unwrap();
    for path in [folder.path().join("new/nested"), empty] {
        let data = DataFolder::open(Some(path.clone())).unwrap();
        for path in [&path, &data.kv_path(), &data.models_path()] {
            assert_eq!(mode(path), 0o700, "{}", path.display());
        }
        assert_eq!(mode(&path.join("reprise.lock")), 0o600);
    }
    // A folder that holds other things is somebody else's: it keeps its mode.
    let shared = folder.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    std::fs::write(shared.join("letter"), "hello").unwrap();
    std::fs::set_permissions(&shared, open_mode).unwrap();
    let data = DataFolder::open(Some(shared.clone())).unwrap();
    assert_eq!((mode(&shared), mode(&data.kv_path())), (0o755, 0o700));
}
