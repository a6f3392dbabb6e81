//! The arrows of the workspace point down: shell → engine → {models → kernels, store}, and in the UI
//! components → state → backend. Checked over cargo's resolved graph and the UI's import lines.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::Result;
use crate::workspace::Workspace;

/// Crates that may not be reached from a crate, however indirectly (a trailing `*` matches a beginning).
const FORBIDDEN: [(&str, &[&str]); 6] = [
    (
        "kernels",
        &["models", "store", "engine", "rusqlite", "tauri*"],
    ),
    ("models", &["store", "engine", "rusqlite", "tauri*"]),
    (
        "store",
        &["kernels", "models", "engine", "candle*", "tauri*"],
    ),
    ("engine", &["tauri*"]),
    ("reprise-engine", &["tauri*"]),
    ("reprise-cli", &["tauri*"]),
];
/// Crates that may not be named by a crate's own manifest.
const UNNAMED: [(&str, &[&str]); 7] = [
    ("kernels", &["tauri*"]),
    ("models", &["tauri*"]),
    ("store", &["tauri*"]),
    ("engine", &["rusqlite", "tauri*"]),
    ("reprise-engine", &["rusqlite", "tauri*"]),
    ("reprise-cli", &["rusqlite", "tauri*"]),
    ("tests", &["tauri*"]),
];
/// What the import lines below a folder of `ui/src` may not hold.
const IMPORTS: [(&str, &[&str]); 2] = [
    ("components", &["backend/tauri", "@tauri-apps"]),
    ("state", &["components/", "@tauri-apps"]),
];

/// Every arrow that points up, or nothing.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let graph = Graph::of(&workspace.metadata)?;
    let mut wrong = Vec::new();
    for (name, forbidden) in FORBIDDEN {
        let reached = graph.reached(name)?;
        for crate_name in reached
            .iter()
            .filter(|found| forbidden.iter().any(|rule| matches(rule, found)))
        {
            wrong.push(format!("{name} depends on {crate_name}"));
        }
    }
    for (name, forbidden) in UNNAMED {
        for found in graph
            .named(name)?
            .iter()
            .filter(|found| forbidden.iter().any(|rule| matches(rule, found)))
        {
            wrong.push(format!("{name} names {found}"));
        }
    }
    for (folder, forbidden) in IMPORTS {
        let dir = workspace.ui().join("src").join(folder);
        imports(&dir, forbidden, &mut wrong)?;
    }
    if wrong.is_empty() {
        println!("every arrow points down");
        Ok(())
    } else {
        Err(wrong.join("\n  "))
    }
}

/// cargo's resolved packages, for all platforms.
struct Graph<'a> {
    /// package id → name
    names: HashMap<&'a str, &'a str>,
    /// package id → its dependencies for use and for build scripts (not those of tests)
    edges: HashMap<&'a str, Vec<&'a str>>,
    /// name of a workspace member → (id, every crate its manifest names)
    members: HashMap<&'a str, (&'a str, BTreeSet<&'a str>)>,
}

impl<'a> Graph<'a> {
    fn of(metadata: &'a Value) -> Result<Graph<'a>> {
        let list = |value: &'a Value| value.as_array().map(Vec::as_slice).unwrap_or_default();
        let text = |value: &'a Value| value.as_str().unwrap_or_default();
        let local: BTreeSet<&str> = list(&metadata["workspace_members"])
            .iter()
            .map(text)
            .collect();
        let mut graph = Graph {
            names: HashMap::new(),
            edges: HashMap::new(),
            members: HashMap::new(),
        };
        for package in list(&metadata["packages"]) {
            let (id, name) = (text(&package["id"]), text(&package["name"]));
            graph.names.insert(id, name);
            if local.contains(id) {
                let named = list(&package["dependencies"])
                    .iter()
                    .map(|dependency| text(&dependency["name"]));
                graph.members.insert(name, (id, named.collect()));
            }
        }
        for node in list(&metadata["resolve"]["nodes"]) {
            let used = list(&node["deps"]).iter().filter(|dependency| {
                list(&dependency["dep_kinds"])
                    .iter()
                    .any(|kind| kind["kind"] != "dev")
            });
            graph.edges.insert(
                text(&node["id"]),
                used.map(|dependency| text(&dependency["pkg"])).collect(),
            );
        }
        if graph.members.is_empty() {
            return Err("cargo metadata lists no member of the workspace".into());
        }
        Ok(graph)
    }

    fn member(&self, name: &str) -> Result<&(&'a str, BTreeSet<&'a str>)> {
        self.members
            .get(name)
            .ok_or_else(|| format!("the workspace has no crate {name}"))
    }

    fn named(&self, name: &str) -> Result<&BTreeSet<&'a str>> {
        Ok(&self.member(name)?.1)
    }

    /// The names of all crates below `name`.
    fn reached(&self, name: &str) -> Result<BTreeSet<&'a str>> {
        let mut seen = BTreeSet::new();
        let mut open = vec![self.member(name)?.0];
        while let Some(id) = open.pop() {
            for next in self.edges.get(id).into_iter().flatten() {
                if seen.insert(*next) {
                    open.push(next);
                }
            }
        }
        Ok(seen
            .iter()
            .filter_map(|id| self.names.get(id).copied())
            .collect())
    }
}

fn matches(rule: &str, name: &str) -> bool {
    match rule.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => rule == name,
    }
}

/// Adds every import line below `dir` that holds one of `forbidden`.
fn imports(dir: &Path, forbidden: &[&str], wrong: &mut Vec<String>) -> Result<()> {
    let read = fs::read_dir(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    for path in read.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.is_dir() {
            imports(&path, forbidden, wrong)?;
            continue;
        }
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        for (number, line) in text.lines().enumerate() {
            let imports = line.contains("import") || line.contains(" from ");
            if imports && forbidden.iter().any(|word| line.contains(word)) {
                wrong.push(format!(
                    "{}:{}: {}",
                    path.display(),
                    number + 1,
                    line.trim()
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Graph;

    #[test]
    fn an_indirect_dependency_is_seen_and_one_of_tests_is_not() {
        let metadata = json!({
            "workspace_members": ["a"],
            "packages": [
                {"id": "a", "name": "store", "dependencies": [{"name": "b"}]},
                {"id": "b", "name": "b", "dependencies": []},
                {"id": "c", "name": "candle-core", "dependencies": []},
                {"id": "d", "name": "rand", "dependencies": []},
            ],
            "resolve": {"nodes": [
                {"id": "a", "deps": [
                    {"pkg": "b", "dep_kinds": [{"kind": null}]},
                    {"pkg": "d", "dep_kinds": [{"kind": "dev"}]},
                ]},
                {"id": "b", "deps": [{"pkg": "c", "dep_kinds": [{"kind": "build"}]}]},
            ]},
        });
        let graph = Graph::of(&metadata).expect("a graph");
        let reached: Vec<_> = graph
            .reached("store")
            .expect("a member")
            .into_iter()
            .collect();
        assert_eq!(reached, ["b", "candle-core"]);
    }
}
