//! The commands that look at a job and do not run it, as a person meets them.

use super::{text, waterwheel};
use std::path::Path;

#[test]
fn validate_names_all_faults_with_their_paths_and_exits_with_2() {
    let file = "host/tests/cli/jobs/six-faults.yaml";
    let output = waterwheel(&["validate", file]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output.stdout), "");
    let mut lines: Vec<&str> =
        text(&output.stderr).lines().map(|line| line.strip_prefix("host/tests/cli/jobs/six-faults.yaml: ").unwrap_or(line)).collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "/execution/checkpointing/mode: \"exactly-twice\" is wrong here: expected \"exactly-once\" or \"at-least-once\"",
            "/operators/0/inputs/0: unknown input \"ordres\"; did you mean \"orders\"?",
            "/operators/0/parallelism: 300 is more than max-parallelism, which is 128: give fewer subtasks or a larger max-parallelism",
            "/operators/0/plugin: there is no plugin at host/tests/cli/jobs/totals.wasm",
            "/sinks/0/delivery-guarantee: exactly-once needs checkpointing: set execution.checkpointing.interval and dir",
            "/sources/0/rats: unknown key \"rats\"; did you mean \"rate\"?",
            "6 faults",
        ]
    );
}

#[test]
fn what_is_no_document_or_not_there_is_a_wrong_specification() {
    for (file, says) in [("no-such-job.yaml", "cannot read no-such-job.yaml"), ("Makefile-is-no-job", "cannot read")] {
        let output = waterwheel(&["validate", file]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(says), "{}", text(&output.stderr));
    }
    assert_eq!(waterwheel(&["validate"]).status.code(), Some(2));
}

#[test]
fn the_quickstart_is_valid_and_can_be_drawn_without_its_plugins() {
    let job = "examples/quickstart/job.yaml";
    let output = waterwheel(&["validate", "--no-plugins", job]);
    assert_eq!(text(&output.stdout), "examples/quickstart/job.yaml: job quickstart is valid: sources 1, operators 2, sinks 1\n");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for (format, says) in [("text", "clean  plugin"), ("mermaid", "flowchart LR"), ("json", "\"exchange\": \"key-group\"")] {
        let output = waterwheel(&["plan", "--no-plugins", "--format", format, job]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains(says), "{}", text(&output.stdout));
    }
}

#[test]
fn every_plugin_that_cannot_be_loaded_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let job = folder.path().join("job.yaml");
    std::fs::write(folder.path().join("text.wasm"), "this is not WebAssembly").unwrap();
    let document = "
name: plugins
sources: [{uid: orders, type: generator}]
operators:
- {uid: a, plugin: gone.wasm, inputs: [orders]}
- {uid: b, plugin: text.wasm, inputs: [a]}
- {uid: c, plugin: some-plugin@1, inputs: [b]}
sinks: [{uid: out, type: file, path: out, inputs: [c]}]
";
    std::fs::write(&job, document).unwrap();
    let output = waterwheel(&["validate", job.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let errors = text(&output.stderr);
    assert!(errors.contains("/operators/0/plugin: there is no plugin at") && errors.contains("gone.wasm"), "{errors}");
    assert!(errors.contains("/operators/1/plugin: ") && errors.contains("the file is not WebAssembly"), "{errors}");
    assert!(errors.contains("/operators/2/plugin: ") && errors.contains("registry"), "{errors}");
    assert!(errors.ends_with("3 faults\n"), "{errors}");
}

#[test]
fn schema_prints_what_the_repository_keeps() {
    let output = waterwheel(&["schema"]);
    let kept = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../schema/job.schema.json")).unwrap();
    assert!(
        text(&output.stdout) == kept,
        "schema/job.schema.json is not what the code says: run `cargo run --release -p waterwheel -- schema > schema/job.schema.json` and look at the difference"
    );
}
