//! `waterwheel checkpoint`, on what a small job with state has left.

use super::{text, waterwheel};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A job that has finished, with two checkpoints or more.
struct Left {
    folder: TempDir,
}

impl Left {
    fn new() -> Self {
        let left = Self { folder: tempfile::tempdir().unwrap() };
        let plugins = std::env::var_os("WATERWHEEL_PLUGINS").map_or_else(|| root().join("target/plugins"), PathBuf::from);
        let job = format!(
            "name: counts
sources: [{{uid: orders, type: generator, seed: 7, count: 3000, rate: 3000}}]
operators: [{{uid: total, plugin: {}, inputs: [{{from: orders, key-by: {{json-pointer: /user}}}}]}}]
sinks: [{{uid: out, type: discard, inputs: [total]}}]
execution: {{checkpointing: {{interval: 100 ms, dir: {}, num-retained: 5}}}}
",
            plugins.join("running-total.wasm").display(),
            left.path("checkpoints").display()
        );
        fs::write(left.path("job.yaml"), job).unwrap();
        let output = waterwheel(&["run", "--quiet", &left.text("job.yaml")]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        left
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// What a command prints that goes well.
    fn says(&self, command: &str, arguments: &[&str]) -> String {
        let job = self.text("job.yaml");
        let output = waterwheel(&[&["checkpoint", command, &job], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout).to_owned()
    }

    /// What it says that goes wrong.
    fn fails(&self, command: &str, arguments: &[&str]) -> String {
        let job = self.text("job.yaml");
        let output = waterwheel(&[&["checkpoint", command, &job], arguments].concat());
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
        text(&output.stderr).to_owned()
    }

    fn listed(&self) -> Vec<Value> {
        let document: Value = serde_json::from_str(&self.says("list", &["--format", "json"])).unwrap();
        document["checkpoints"].as_array().unwrap().clone()
    }

    /// A state file of the newest entry.
    fn state_file(&self) -> PathBuf {
        let manifest: Value = serde_json::from_str(&self.says("show", &[])).unwrap();
        let path = manifest["snapshot"]["operators"]["total"]["subtasks"]["0"]["chain"][0]["path"].as_str().unwrap();
        self.path("checkpoints").join(path)
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

#[test]
fn checkpoints_are_listed_shown_and_verified() {
    let left = Left::new();
    let listed = left.listed();
    assert!(listed.len() >= 3 && listed.last().unwrap()["kind"] == "finished", "{listed:?}");
    assert!(listed[1]["state_bytes"].as_u64().unwrap() > 0, "{listed:?}");
    let table = left.says("list", &[]);
    assert!(table.lines().count() == listed.len() + 2 && table.contains("finished"), "{table}");
    // By its folder, too.
    let by_folder = waterwheel(&["checkpoint", "list", &format!("{}/counts", left.text("checkpoints"))]);
    assert_eq!(text(&by_folder.stdout), table);

    let number = listed[1]["checkpoint"].to_string();
    let shown: Value = serde_json::from_str(&left.says("show", &[&number])).unwrap();
    assert_eq!(shown["attempt"], listed[1]["attempt"]);
    assert!(left.fails("show", &["77"]).contains("has no checkpoint 77; there are: "));

    let verified = left.says("verify", &[]);
    assert!(verified.lines().count() == listed.len() && verified.lines().all(|line| line.ends_with("intact")), "{verified}");
}

#[test]
fn damage_is_named_file_by_file() {
    let left = Left::new();
    let file = left.state_file();
    let mut content = fs::read(&file).unwrap();
    content[10] ^= 1;
    fs::write(&file, &content).unwrap();
    let name = file.file_name().unwrap().to_str().unwrap();
    let said = left.fails("verify", &[]);
    assert!(said.contains(name) && said.contains("does not match its checksum") && said.contains("1 damaged"), "{said}");
    fs::write(&file, &content[1..]).unwrap();
    assert!(left.fails("verify", &[]).contains("has the wrong length"));
    fs::remove_file(&file).unwrap();
    assert!(left.fails("verify", &[]).contains("is missing"));

    let number = left.listed()[1]["checkpoint"].to_string();
    let manifest = left.path(&format!("checkpoints/counts/chk-{number}/_metadata"));
    fs::write(&manifest, b"nothing of the kind").unwrap();
    assert!(left.fails("verify", &[]).contains(&format!("chk-{number}/_metadata is damaged")));
    assert!(left.fails("show", &[&number]).contains("is damaged"));
    assert!(left.says("list", &[]).contains("damaged"));
}

#[test]
fn pruning_keeps_the_newest_and_what_they_need() {
    let left = Left::new();
    let before = left.listed();
    let would = left.says("prune", &["--keep", "1", "--dry-run"]);
    assert!(would.contains("would be deleted"), "{would}");
    assert_eq!(left.listed(), before);
    let did = left.says("prune", &["--keep", "1"]);
    assert_eq!(did.replace(" deleted", ""), would.replace(" would be deleted", ""));
    let after = left.listed();
    assert!(after.len() < before.len() && after.last() == before.last(), "{after:?}");
    let verified = left.says("verify", &[]);
    assert!(verified.lines().all(|line| line.ends_with("intact")), "{verified}");
    assert!(left.says("prune", &["--keep", "1"]).starts_with("0 entries"));
}

#[test]
fn where_there_is_nothing_one_sentence_says_so_and_nothing_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let wanted = folder.path().join("nowhere/job");
    let output = waterwheel(&["checkpoint", "list", wanted.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("there are no checkpoints of job job in"), "{}", text(&output.stderr));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
