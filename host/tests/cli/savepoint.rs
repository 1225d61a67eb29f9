//! `waterwheel savepoint` and `waterwheel plugin check`, on what small jobs with state have left, and on the savepoints that every version restores.

use super::{text, waterwheel};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use tempfile::TempDir;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn plugin(name: &str) -> String {
    let plugins = std::env::var_os("WATERWHEEL_PLUGINS").map_or_else(|| root().join("target/plugins"), PathBuf::from);
    plugins.join(name).with_extension("wasm").to_str().unwrap().to_owned()
}

/// A folder with jobs in it.
struct Lab {
    folder: TempDir,
}

impl Lab {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Orders by user, summed up, and counted in windows: a value state, a map state and timers. `count` orders of a sequence that is always the same.
    fn job(&self, name: &str, count: u64) -> Value {
        let input = json!({"from": "orders", "key-by": {"json-pointer": "/user"}});
        json!({
            "name": name,
            "sources": [{"uid": "orders", "type": "generator", "seed": 7, "count": count, "rate": 10_000,
                "event-time": {"watermark": {"out-of-orderness": "1 h"}}}],
            "operators": [
                {"uid": "total", "plugin": plugin("running-total"), "inputs": [input]},
                {"uid": "windows", "plugin": plugin("tumbling-count"), "config": {"size-ms": 3_600_000}, "inputs": [input]},
            ],
            "sinks": [
                {"uid": "totals", "type": "file", "path": self.path(&format!("{name}-totals")), "inputs": ["total"]},
                {"uid": "counts", "type": "discard", "inputs": ["windows"]},
            ],
            "execution": {"checkpointing": {"interval": "100 ms", "dir": self.path("checkpoints"), "num-retained": 50}},
        })
    }

    fn write(&self, job: &Value) -> String {
        let file = self.path(&format!("{}.yaml", job["name"].as_str().unwrap()));
        fs::write(&file, job.to_string()).unwrap();
        file
    }

    fn run(&self, job: &Value, arguments: &[&str]) -> Output {
        waterwheel(&[&["run", "--quiet", &self.write(job)], arguments].concat())
    }

    /// Runs a job to its end.
    #[track_caller]
    fn finish(&self, job: &Value, arguments: &[&str]) {
        let output = self.run(job, arguments);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("has finished"), "{}", text(&output.stderr));
    }

    /// A job that was refused, and what it said.
    #[track_caller]
    fn refused(&self, job: &Value, arguments: &[&str]) -> String {
        let output = self.run(job, arguments);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{}", text(&output.stderr));
        text(&output.stderr).to_owned()
    }

    /// The number of a checkpoint that stands in the middle, with state in it.
    fn middle(&self, job: &str) -> String {
        let document = says(&["checkpoint", "list", &self.path(&format!("checkpoints/{job}")), "--format", "json"]);
        let document: Value = serde_json::from_str(&document).unwrap();
        let checkpoints = document["checkpoints"].as_array().unwrap();
        let full = |entry: &&Value| entry["kind"] == "checkpoint" && entry["state_bytes"].as_u64() > Some(0);
        checkpoints.iter().find(full).unwrap_or_else(|| panic!("{document}"))["checkpoint"].to_string()
    }

    /// A savepoint of a job that has read so many orders.
    fn savepoint(&self, job: &str, count: u64, to: &str) -> String {
        self.finish(&self.job(job, count), &[]);
        let to = self.path(to);
        says(&["savepoint", "create", &self.path(&format!("{job}.yaml")), "--checkpoint", &self.middle(job), "--to", &to]);
        to
    }

    /// The last total of each user that a job has shown.
    fn totals(&self, job: &str) -> BTreeMap<String, u64> {
        let mut totals: BTreeMap<String, u64> = BTreeMap::new();
        let Ok(entries) = fs::read_dir(self.path(&format!("{job}-totals"))) else { return totals };
        for file in entries.map(|entry| entry.unwrap().path()) {
            for line in fs::read_to_string(file).unwrap().lines() {
                let line: Value = serde_json::from_str(line).unwrap();
                let last = totals.entry(line["key"].as_str().unwrap().to_owned()).or_default();
                *last = (*last).max(line["count"].as_u64().unwrap());
            }
        }
        totals
    }
}

#[track_caller]
fn says(arguments: &[&str]) -> String {
    let output = waterwheel(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

#[track_caller]
fn fails(arguments: &[&str]) -> String {
    let output = waterwheel(arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", text(&output.stdout));
    text(&output.stderr).to_owned()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))).collect()
}

#[test]
fn a_savepoint_is_made_listed_shown_verified_and_deleted() {
    let lab = Lab::new();
    let sp = lab.savepoint("counts", 5_000, "sp/one");
    let list = says(&["savepoint", "list", &lab.path("sp")]);
    assert!(list.lines().count() == 2 && list.contains(&sp) && list.contains("counts"), "{list}");
    let listed: Value = serde_json::from_str(&says(&["savepoint", "list", &sp, "--format", "json"])).unwrap();
    assert_eq!((&listed[0]["path"], &listed[0]["operators"]), (&json!(sp), &json!(["total", "windows"])));
    let shown: Value = serde_json::from_str(&says(&["savepoint", "show", &sp])).unwrap();
    assert_eq!(shown["kind"], json!({"type": "savepoint", "bootstrap": false}));
    assert!(says(&["savepoint", "verify", &sp]).contains("intact"));
    let checkpoint = lab.path(&format!("checkpoints/counts/chk-{}", lab.middle("counts")));
    assert!(says(&["savepoint", "verify", &checkpoint]).starts_with("checkpoint "));
    assert!(fails(&["savepoint", "delete", &checkpoint]).contains("is a checkpoint of job counts, not a savepoint"));
    assert!(fails(&["savepoint", "delete", &lab.path("sp")]).contains("its file"));
    assert!(fails(&["savepoint", "create", &lab.path("checkpoints/counts")]).contains("savepoint-dir"));
    assert!(fails(&["savepoint", "create", &lab.path("checkpoints/counts"), "--to", &sp]).contains("there is a savepoint at"));
    assert!(
        fails(&["savepoint", "create", &lab.path("checkpoints/counts"), "--checkpoint", "777", "--to", &lab.path("x")])
            .contains("no checkpoint 777")
    );
    says(&["savepoint", "delete", &sp]);
    assert!(!Path::new(&sp).exists());
    assert!(fails(&["savepoint", "show", &sp]).contains("there is no savepoint or checkpoint at"));
}

#[test]
fn state_is_read_as_lines_and_written_from_them() {
    let lab = Lab::new();
    let sp = lab.savepoint("counts", 5_000, "sp");
    let all = lines(&says(&["savepoint", "read", &sp]));
    let names: std::collections::BTreeSet<&str> = all.iter().map(|line| line["state"].as_str().unwrap()).collect();
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["counts", "totals"], "the host's own states are hidden");
    let totals = lines(&says(&["savepoint", "read", &sp, "--operator", "total", "--state", "totals"]));
    assert!(totals.iter().all(|line| line["value"]["count"].is_u64() && line["subkey"].is_null()), "{:?}", totals[0]);
    let counts = lines(&says(&["savepoint", "read", &sp, "--operator", "windows"]));
    assert!(counts.iter().all(|line| line["subkey"].is_i64() && line["value"].is_u64()), "{:?}", counts[0]);
    let user = totals[0]["key"].as_str().unwrap();
    assert_eq!(lines(&says(&["savepoint", "read", &sp, "--operator", "total", "--key", user])).len(), 1);
    let timers = lines(&says(&["savepoint", "read", &sp, "--state", "waterwheel.timers"]));
    assert!(!timers.is_empty() && timers[0]["subkey"]["base64"].is_string(), "{timers:?}");
    assert!(fails(&["savepoint", "read", &sp, "--operator", "none"]).contains("has no operator none; there are: total, windows"));

    // All of it, and back again.
    let file = lab.path("lines");
    says(&["savepoint", "read", &sp, "--to", &file]);
    let timers = says(&["savepoint", "read", &sp, "--state", "waterwheel.timers"]);
    fs::write(&file, fs::read_to_string(&file).unwrap() + &timers).unwrap();
    let copy = lab.path("copy");
    assert!(says(&["savepoint", "write", &file, "--job", "other", "--to", &copy]).contains("entries of total, windows"));
    let difference: Value = serde_json::from_str(&says(&["savepoint", "diff", &sp, &copy, "--format", "json"])).unwrap();
    assert_eq!(difference.as_array().unwrap().len(), 3);
    for state in difference.as_array().unwrap() {
        assert!(state["same"].as_u64() > Some(0), "{state}");
        assert_eq!((&state["added"], &state["removed"], &state["changed"]), (&json!([]), &json!([]), &json!([])), "{state}");
    }
    fs::write(&file, "{}").unwrap();
    assert!(fails(&["savepoint", "write", &file, "--job", "other", "--to", &lab.path("y")]).contains("line 1: missing field"));
    // A job begins with it.
    lab.finish(&lab.job("other", 1_000), &["--from-savepoint", &copy]);
    let counts: BTreeMap<String, u64> =
        totals.iter().map(|line| (line["key"].as_str().unwrap().to_owned(), line["value"]["count"].as_u64().unwrap())).collect();
    let after = lab.totals("other");
    assert!(!after.is_empty() && after.iter().all(|(user, total)| *total > counts.get(user).copied().unwrap_or(0)), "{after:?}");
}

#[test]
fn a_difference_names_the_keys() {
    let lab = Lab::new();
    let write = |name: &str, lines: &[&str]| {
        let file = lab.path(&format!("{name}.lines"));
        fs::write(&file, lines.join("\n")).unwrap();
        says(&["savepoint", "write", &file, "--job", "j", "--to", &lab.path(name)]);
        lab.path(name)
    };
    let entry = |key: &str, value: u8| format!(r#"{{"operator":"o","state":"s","key":"{key}","value":{value}}}"#);
    let (a, b, c, other) = (entry("a", 1), entry("b", 1), entry("c", 1), entry("b", 2));
    let (first, second) = (write("first", &[&a, &b]), write("second", &[&other, &c]));
    let said = says(&["savepoint", "diff", &first, &second]);
    assert_eq!(said, "operator o, state s: 1 added, 1 removed, 1 changed, 0 the same\n  + \"c\"\n  - \"a\"\n  ~ \"b\"\n");
}

#[test]
fn operators_that_were_removed_renamed_or_added() {
    let lab = Lab::new();
    let sp = lab.savepoint("counts", 5_000, "sp");
    let restore = ["--from-savepoint", &sp, "--allow-duplicate-output"];
    let mut renamed = lab.job("counts", 6_000);
    renamed["operators"][0]["uid"] = json!("sum");
    renamed["sinks"][0]["inputs"] = json!(["sum"]);
    let said = lab.refused(&renamed, &restore);
    assert!(said.contains("holds state of operator total") && said.contains("--allow-non-restored-state"), "{said}");
    let mut removed = lab.job("counts", 6_000);
    removed["operators"].as_array_mut().unwrap().remove(1);
    removed["sinks"].as_array_mut().unwrap().remove(1);
    let said = lab.refused(&removed, &restore);
    assert!(said.contains("holds state of operator windows"), "{said}");
    // Nothing was closed: the job is still the finished one.
    assert!(text(&lab.run(&lab.job("counts", 5_000), &[]).stderr).contains("had finished before"));

    let mut added = lab.job("counts", 6_000);
    let input = json!({"from": "orders", "key-by": {"json-pointer": "/user"}});
    added["operators"].as_array_mut().unwrap().push(json!({"uid": "again", "plugin": plugin("running-total"), "inputs": [input]}));
    added["sinks"].as_array_mut().unwrap().push(json!({"uid": "more", "type": "discard", "inputs": ["again"]}));
    lab.finish(&added, &restore);
    // With permission the state of what was removed is left behind.
    let sp = lab.savepoint("second", 5_000, "sp-2");
    let mut removed = lab.job("second", 6_000);
    removed["operators"].as_array_mut().unwrap().remove(1);
    removed["sinks"].as_array_mut().unwrap().remove(1);
    lab.finish(&removed, &["--from-savepoint", &sp, "--allow-duplicate-output", "-n"]);
}

#[test]
fn a_plugin_says_which_states_it_takes() {
    let lab = Lab::new();
    let sp = lab.savepoint("counts", 5_000, "sp");
    let said = says(&["plugin", "check", &plugin("running-total"), "--against", &sp]);
    assert!(said.starts_with("operator total, state totals, version 1, ") && said.ends_with("entries: taken\n"), "{said}");
    let said = says(&["plugin", "check", &plugin("tumbling-count"), "--against", &sp, "--operator", "windows"]);
    assert_eq!(said.lines().filter(|line| line.ends_with("taken")).count(), 2, "{said}");
    let output = waterwheel(&[
        "plugin",
        "check",
        &plugin("tumbling-count"),
        "--against",
        &sp,
        "--operator",
        "total",
        "--config",
        "{\"size-ms\": 10}",
    ]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    assert!(
        said.contains("operator total, state totals") && said.contains("refused: operator total: the plugin refuses its state"),
        "{said}"
    );
    assert!(text(&output.stderr).contains("refuses 1 of 1 states"));
    assert!(fails(&["plugin", "check", &plugin("passthrough"), "--against", &sp, "--operator", "total"]).contains("keeps no state"));
    assert!(fails(&["plugin", "check", &plugin("faulty-keyed"), "--against", &sp]).contains("say which with --operator: total, windows"));
    // A newer version than the plugin knows.
    let file = lab.path("lines");
    fs::write(&file, r#"{"operator":"total","state":"totals","version":2,"key":"a","value":{"count":1,"sum":"1"}}"#).unwrap();
    says(&["savepoint", "write", &file, "--job", "j", "--to", &lab.path("newer")]);
    let output = waterwheel(&["plugin", "check", &plugin("running-total"), "--against", &lab.path("newer")]);
    assert!(text(&output.stdout).contains("values are of version 2, and this plugin knows version 1"), "{}", text(&output.stdout));
    assert_eq!(output.status.code(), Some(1));
}

/// A savepoint of each released version of the format: a job with a value, a map and timers that had read some of 5,000 orders.
#[test]
fn savepoints_of_all_versions_are_restored() {
    let golden = root().join("tests/golden");
    let mut restored = 0;
    for entry in fs::read_dir(golden).unwrap().map(Result::unwrap) {
        if !entry.file_name().to_str().unwrap().starts_with("savepoint-") {
            continue;
        }
        let lab = Lab::new();
        let sp = entry.path().to_str().unwrap().to_owned();
        assert!(says(&["savepoint", "verify", &sp]).contains("intact"));
        // What the whole sequence comes to, without a break.
        lab.finish(&lab.job("whole", 5_000), &[]);
        lab.finish(&lab.job("golden", 5_000), &["--from-savepoint", &sp, "--take-over-prefix"]);
        let (whole, after) = (lab.totals("whole"), lab.totals("golden"));
        assert!(!after.is_empty());
        for (user, total) in &after {
            assert_eq!(whole.get(user), Some(total), "{user}");
        }
        restored += 1;
    }
    assert!(restored >= 1);
}

/// Makes the savepoint of this version: `cargo test --test cli -- --ignored golden`, once for each released version of the format.
#[test]
#[ignore = "it writes into the repository"]
fn make_the_golden_savepoint() {
    let lab = Lab::new();
    // Nothing of the machine that it is made on comes into it.
    let mut job = lab.job("golden", 5_000);
    fs::create_dir(lab.path("plugins")).unwrap();
    for (operator, name) in [(0, "running-total"), (1, "tumbling-count")] {
        let relative = format!("plugins/{name}.wasm");
        fs::copy(plugin(name), lab.path(&relative)).unwrap();
        job["operators"][operator]["plugin"] = json!(relative);
    }
    job["sinks"][0] = json!({"uid": "totals", "type": "discard", "inputs": ["total"]});
    lab.finish(&job, &[]);
    let sp = lab.path("sp");
    says(&["savepoint", "create", &lab.path("golden.yaml"), "--checkpoint", &lab.middle("golden"), "--to", &sp]);
    let version = fs::read_to_string(format!("{sp}/_metadata")).unwrap().split(' ').nth(1).unwrap().to_owned();
    let to = root().join(format!("tests/golden/savepoint-{version}"));
    copy(Path::new(&sp), &to);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
