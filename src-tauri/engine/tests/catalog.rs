//! The list of models, and the effects of adding and removing them.

use std::path::{Path, PathBuf};

use engine::catalog::{add, list, remove, require, resolve, set_default};
use engine::{Error, ModelEntry};
use models::Architecture;
use models::tiny::{self, TinyModel};
use store::History;
use tempfile::TempDir;

/// A history, a models folder, and a folder elsewhere.
struct Scene {
    home: TempDir,
    history: History,
}

impl Scene {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        for folder in ["models", "elsewhere", "other"] {
            std::fs::create_dir(home.path().join(folder)).unwrap();
        }
        let history = History::open(&home.path().join("history.db")).unwrap();
        Self { home, history }
    }

    fn models(&self) -> PathBuf {
        self.home.path().join("models")
    }

    /// A usable model file.
    fn file(&self, place: &str) -> PathBuf {
        let path = self.home.path().join(place);
        tiny::write(&path, &TinyModel::new(Architecture::Llama, 1)).unwrap();
        path
    }

    fn add(&mut self, path: &Path) -> engine::Result<ModelEntry> {
        let folder = self.models();
        add(&mut self.history, &folder, path)
    }

    fn list(&self) -> Vec<ModelEntry> {
        list(&self.history, &self.models(), None).unwrap()
    }

    fn names(&self) -> Vec<String> {
        self.list().into_iter().map(|model| model.name).collect()
    }

    fn default(&self) -> String {
        let path = resolve(&self.history, &self.models(), None).unwrap();
        path.file_stem().unwrap().to_string_lossy().into_owned()
    }
}

#[test]
fn the_default_is_the_first_that_can_be_used_and_the_others_are_shown_as_what_they_are() {
    let scene = Scene::new();
    let good = scene.file("models/zeta.gguf");
    let models = scene.models();
    std::fs::write(models.join("alpha.gguf"), "").unwrap();
    std::fs::create_dir(models.join("beta.gguf")).unwrap();
    std::fs::write(models.join("gamma.gguf"), b"GGUF and nothing else").unwrap();
    let whole = std::fs::read(&good).unwrap();
    std::fs::write(models.join("delta.gguf"), &whole[..whole.len() / 2]).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink("/nowhere/at/all.gguf", models.join("epsilon.gguf")).unwrap();
    assert_eq!(scene.default(), "zeta");
    for model in scene.list() {
        let is_good = model.name == "zeta";
        assert_eq!(model.usable, is_good, "{model:?}");
        assert_eq!(model.problem.is_none(), is_good, "{model:?}");
        assert_eq!(model.is_default, is_good, "{model:?}");
    }
    assert!(scene.names().len() >= 5);
    let refused = require(&scene.history, &models, "alpha").unwrap_err();
    assert!(refused.code().starts_with("model_"), "{refused}");
}

#[test]
fn adding_a_file_that_sorts_first_changes_no_default() {
    let mut scene = Scene::new();
    scene.file("models/middle.gguf");
    let first = scene.file("elsewhere/aaa.gguf");
    let entry = scene.add(&first).unwrap();
    assert!(
        entry.added && entry.usable && !entry.is_default,
        "{entry:?}"
    );
    assert_eq!(scene.default(), "middle");
    std::fs::remove_file(first).unwrap();
    assert_eq!(scene.default(), "middle");
    assert!(!scene.list()[0].usable);
}

#[test]
fn the_chosen_default_is_used_as_long_as_it_can_be() {
    let mut scene = Scene::new();
    scene.file("models/a.gguf");
    let chosen = scene.file("models/b.gguf");
    set_default(&mut scene.history, "b").unwrap();
    assert_eq!(scene.default(), "b");
    std::fs::write(&chosen, "broken").unwrap();
    assert_eq!(scene.default(), "a");
    std::fs::remove_file(&chosen).unwrap();
    assert_eq!(scene.default(), "a");
}

#[test]
fn a_model_that_moved_is_taken_up_where_it_is_now() {
    let mut scene = Scene::new();
    let old = scene.file("elsewhere/My Model.gguf");
    scene.add(&old).unwrap();
    let new = scene.home.path().join("other").join("My Model.gguf");
    std::fs::rename(&old, &new).unwrap();
    assert_eq!(scene.add(&new).unwrap().path, new.display().to_string());
    assert_eq!(scene.names(), ["My Model"]);
    require(&scene.history, &scene.models(), "My Model").unwrap();
}

#[test]
fn a_file_that_cannot_be_used_gives_its_name_to_one_that_can() {
    let mut scene = Scene::new();
    std::fs::write(scene.models().join("m.gguf"), "half").unwrap();
    let good = scene.file("elsewhere/m.gguf");
    assert!(scene.add(&good).unwrap().usable);
    assert_eq!(scene.names(), ["m"]);
    // A second usable file of the same name is refused.
    let other = scene.file("other/m.gguf");
    let error = scene.add(&other).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    assert!(error.to_string().contains("rename"), "{error}");
}

#[test]
fn an_entry_whose_file_is_gone_makes_way_for_one_of_the_folder() {
    let mut scene = Scene::new();
    let added = scene.file("elsewhere/m.gguf");
    scene.add(&added).unwrap();
    std::fs::remove_file(&added).unwrap();
    let there = scene.file("models/m.gguf");
    let listed = scene.list();
    assert!(listed[0].usable && !listed[0].added, "{listed:?}");
    let folder = scene.models();
    let removed = remove(&mut scene.history, &folder, "m", true).unwrap();
    assert!(removed.deleted && !there.exists());
    assert!(scene.names().is_empty(), "the dead entry goes with it");
}

#[test]
fn one_file_by_another_spelling_or_link_is_one_entry() {
    let mut scene = Scene::new();
    let path = scene.file("elsewhere/m.gguf");
    scene.add(&path).unwrap();
    let climbing = scene.home.path().join("other/../elsewhere/./m.gguf");
    assert_eq!(scene.add(&climbing).unwrap().name, "m");
    #[cfg(unix)]
    {
        let link = scene.home.path().join("other").join("link.gguf");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(scene.add(&link).unwrap().name, "m");
    }
    #[cfg(unix)]
    {
        let address = format!("file://{}", path.display());
        assert_eq!(scene.add(Path::new(&address)).unwrap().name, "m");
    }
    assert_eq!(scene.names(), ["m"]);
}

#[cfg(unix)]
#[test]
fn the_target_of_a_link_in_the_folder_is_the_models_there() {
    let mut scene = Scene::new();
    let target = scene.file("elsewhere/m.gguf");
    std::os::unix::fs::symlink(&target, scene.models().join("m.gguf")).unwrap();
    let entry = scene.add(&target).unwrap();
    assert!(!entry.added, "{entry:?}");
    assert_eq!(scene.names(), ["m"]);
}

#[test]
fn removing_forgets_what_was_added_and_deletes_a_file_only_where_that_is_said() {
    let mut scene = Scene::new();
    let added = scene.file("elsewhere/a.gguf");
    let own = scene.file("models/b.gguf");
    scene.add(&added).unwrap();
    let folder = scene.models();
    let removed = remove(&mut scene.history, &folder, "a", false).unwrap();
    assert!(!removed.deleted && added.exists());
    assert_eq!(scene.names(), ["b"]);
    let refused = remove(&mut scene.history, &folder, "b", false).unwrap_err();
    assert_eq!(refused.code(), "invalid_argument");
    assert!(refused.to_string().contains("--delete-file"), "{refused}");
    assert!(own.exists());
    assert!(
        remove(&mut scene.history, &folder, "b", true)
            .unwrap()
            .deleted
    );
    assert!(!own.exists());
    let missing = remove(&mut scene.history, &folder, "b", true).unwrap_err();
    assert_eq!(missing.code(), "model_missing");
}
