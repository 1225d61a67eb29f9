//! A job that was changed under the uids of its checkpoints.

use super::{Place, plugin};
use std::fs;

/// A job that has stopped in the middle, so that it can go on: `KEY`, `PATH` and the rest can be changed.
struct Changed(Place);

const SOURCE: &str = "type: file, path: a.jsonl, rate: 100";
const KEY: &str = "/user";

impl Changed {
    fn new() -> Self {
        let changed = Self(Place::new());
        let lines: String =
            (0..400).map(|number| format!("{{\"user\":\"u{}\",\"name\":\"n\",\"amount\":{number}}}\n", number % 7)).collect();
        for name in ["a.jsonl", "b.jsonl"] {
            fs::write(changed.0.path(name), &lines).unwrap();
        }
        let job = changed.job(SOURCE, KEY, "running-total.wasm");
        let child = changed.0.command(&["run", "--quiet", &job]).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1500));
        super::signal(&child, "TERM");
        assert_eq!(super::wait(child).status.code(), Some(0));
        changed
    }

    fn job(&self, source: &str, key: &str, name: &str) -> String {
        let plugin = plugin(name);
        let operators = format!(
            "operators: [{{uid: op, plugin: {plugin}, inputs: [{{from: in, key-by: {{json-pointer: {key}}}}}]}}]\nsinks: [{{uid: out, type: discard, inputs: [op]}}]\nCHECKPOINTS"
        );
        self.0.job(source, &operators)
    }

    fn refused(&self, job: &str, words: &[&str]) {
        let (code, said) = self.0.run(&[job]);
        assert_eq!(code, Some(1), "{said}");
        for word in words.iter().chain(&["does not fit the job any more", "--allow-non-restored-state", "--fresh"]) {
            assert!(said.contains(word), "{word} in {said}");
        }
        assert!(!said.contains("restarted"), "{said}");
    }
}

#[test]
fn changes_that_would_mix_up_positions_or_state_are_refused_and_others_are_not() {
    let changed = Changed::new();
    let other = |source: &str| changed.job(source, KEY, "running-total.wasm");
    changed.refused(&other("type: file, path: b.jsonl"), &["path of the source in was", "a.jsonl", "b.jsonl"]);
    changed.refused(&other("type: file, path: a.jsonl, format: lines"), &["format of the source in was \"json\" and is \"lines\" now"]);
    changed.refused(
        &other("type: file, path: a.jsonl, compression: gzip"),
        &["compression of the source in was \"auto\" and is \"gzip\" now"],
    );
    changed.refused(&other("type: generator"), &["source in was of type file and is of type generator now"]);
    changed.refused(
        &changed.job(SOURCE, "/name", "running-total.wasm"),
        &["what the operator op reads from in was dealt by {\"json-pointer\":\"/user\"} and is dealt by {\"json-pointer\":\"/name\"} now"],
    );
    changed.refused(&changed.job(SOURCE, KEY, "passthrough.wasm"), &["state of the operator op", "keeps none"]);
    changed.refused(&changed.job(SOURCE, KEY, "tumbling-count.wasm"), &["holds the state", "of the operator op", "has only"]);

    // The same plugin elsewhere, at another rate, with another parallelism.
    fs::copy(plugin("running-total.wasm"), changed.0.path("totals-2.wasm")).unwrap();
    let job = changed.job("type: file, path: a.jsonl, key: /user", KEY, changed.0.path("totals-2.wasm").to_str().unwrap());
    fs::write(&job, fs::read_to_string(&job).unwrap() + "parallelism: 2\n").unwrap();
    let (code, said) = changed.0.run(&[&job]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("has finished"), "{said}");
}

#[test]
fn what_the_next_start_compares_is_kept_in_the_manifest() {
    let changed = Changed::new();
    let manifest = changed.0.command(&["checkpoint", "show", changed.0.path("job.yaml").to_str().unwrap()]).output().unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&manifest.stdout).unwrap();
    let parts = &manifest["snapshot"]["plan"]["parts"];
    assert_eq!(parts["out"].as_object().unwrap().keys().collect::<Vec<_>>(), ["digest", "type_name", "config", "parallelism"]);
    assert_eq!(parts["in"]["identity"]["format"], "json");
    assert_eq!(parts["op"]["inputs"][0]["key_by"]["json-pointer"], "/user");
    assert!(parts["op"]["states"].as_array().is_some_and(|states| !states.is_empty()), "{parts}");
}
