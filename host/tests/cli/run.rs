//! `waterwheel run`, as a person meets it: what it says when it is stopped, cannot start, or cannot write.

use super::text;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long anything may take before the test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a job file: the source's options, and what else is in it; `CHECKPOINTS` stands for a folder of them.
    fn job(&self, source: &str, more: &str) -> String {
        let checkpoints = format!("execution: {{checkpointing: {{interval: 50 ms, dir: {}}}}}", self.path("checkpoints").display());
        let job = format!("name: job\nsources: [{{uid: in, {source}}}]\n{}\n", more.replace("CHECKPOINTS", &checkpoints));
        let file = self.path("job.yaml");
        fs::write(&file, job).unwrap();
        file.to_str().unwrap().to_owned()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_waterwheel"));
        command.args(arguments).current_dir(self.0.path()).env_remove("WATERWHEEL_LOG").stdin(Stdio::null());
        command.env("WATERWHEEL_PLUGIN_CACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("plugin-cache"));
        command
    }

    /// Runs the job to its end.
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let child = self.command(&[&["run", "--quiet"], arguments].concat()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let output = wait(child);
        (output.status.code(), text(&output.stderr).to_owned())
    }
}

const STDOUT: &str = "sinks: [{uid: out, type: stdout, inputs: [in]}]";
const DISCARD: &str = "sinks: [{uid: out, type: discard, inputs: [in]}]\nCHECKPOINTS";

/// Waits for the end of a process, which is killed when that does not come.
fn wait(mut child: Child) -> Output {
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("it did not end: {}", text(&child.wait_with_output().unwrap().stderr));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").arg(format!("-{name}")).arg(child.id().to_string()).status().unwrap().success());
}

fn plugin(name: &str) -> String {
    let folder = std::env::var_os("WATERWHEEL_PLUGINS").map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/plugins"));
    folder.join(name).to_str().unwrap().to_owned()
}

#[test]
fn a_reader_that_goes_away_fails_the_job_also_when_nobody_hears_it_say_so() {
    let place = Place::new();
    for checkpoints in ["", "CHECKPOINTS"] {
        let job = place.job("type: generator, count: 1000000, rate: 50000", &format!("{STDOUT}\n{checkpoints}"));
        let mut child = place.command(&["run", &job]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let output = wait(child);
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(said.contains("sink out: whoever read the standard output has closed it"), "{said}");
        let mut child = place.command(&["run", &job]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop((child.stdout.take(), child.stderr.take()));
        assert_eq!(wait(child).status.code(), Some(1), "neither output has a reader");
    }
}

#[test]
fn lines_that_nobody_took_out_of_the_pipe_fail_the_job() {
    let place = Place::new();
    // All of them have room in the pipe, and nothing is printed when the reader is gone.
    fs::write(place.path("in.log"), "one\ntwo\nthree\nfour\n").unwrap();
    let job = place.job("type: file, follow: true, path: in.log", &format!("{STDOUT}\nCHECKPOINTS"));
    let mut child = place.command(&["run", "--quiet", &job]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = child.stdout.take().unwrap();
    output.read_exact(&mut [0; 5]).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    drop(output);
    let output = wait(child);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("has closed it"), "{}", text(&output.stderr));
}

#[test]
fn commands_that_print_end_quietly_when_nobody_reads() {
    let place = Place::new();
    let job = place.job("type: generator", STDOUT);
    let wrong = place.path("wrong.yaml");
    fs::write(&wrong, "name: [").unwrap();
    for (arguments, code) in [
        (vec!["schema"], 0),
        (vec!["plan", &job], 0),
        (vec!["validate", &job], 0),
        (vec!["validate", wrong.to_str().unwrap()], 2),
        (vec!["--help"], 0),
    ] {
        let mut child = place.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop((child.stdout.take(), child.stderr.take()));
        assert_eq!(wait(child).status.code(), Some(code), "{arguments:?}");
    }
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = wait(place.command(&["schema"]).stdout(full).stderr(Stdio::piped()).spawn().unwrap());
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot write to the standard output: No space left"), "{}", text(&output.stderr));
}

#[test]
fn what_cannot_become_right_by_waiting_is_not_tried_again() {
    let place = Place::new();
    std::os::unix::fs::symlink("loop", place.path("loop")).unwrap();
    for path in ["loop", "loop/x", "loop/*"] {
        let job = place.job(&format!("type: file, follow: true, path: '{path}'"), DISCARD);
        let (code, said) = place.run(&[&job]);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("failed: source in: cannot look at loop") && said.contains("symbolic link there leads back"), "{said}");
        assert!(said.contains("Too many levels of symbolic links") && !said.contains("restarted"), "{said}");
    }
}

#[test]
fn a_folder_without_the_right_to_read_it_fails_the_job_at_once() {
    let place = Place::new();
    fs::create_dir(place.path("closed")).unwrap();
    fs::create_dir(place.path("checkpoints")).unwrap();
    fs::set_permissions(place.path("closed"), fs::Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(place.path("checkpoints"), fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(place.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let job = place.job("type: file, path: closed", DISCARD);
    let mut command = place.command(&["run", "--quiet", &job]);
    if fs::read_dir(place.path("closed")).is_ok() {
        // Whoever may read everything becomes somebody else.
        command.uid(65534).gid(65534);
    }
    let Ok(child) = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn() else {
        println!("left out: this user may read everything and cannot become another one");
        return;
    };
    let output = wait(child);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot read the folder closed; give the user of this process the right to read it"), "{said}");
    assert!(said.contains("Permission denied") && !said.contains("restarted"), "{said}");
}

#[test]
fn a_file_that_gets_its_rights_a_moment_after_it_was_made_is_waited_for() {
    let place = Place::new();
    fs::create_dir(place.path("logs")).unwrap();
    for name in ["logs", "."] {
        fs::set_permissions(place.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let file = place.path("logs/a.log");
    fs::write(&file, "one\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    let job = place.job("type: file, follow: true, discovery-interval: 50 ms, format: lines, path: logs", STDOUT);
    let mut command = place.command(&["run", "--quiet", &job]);
    if fs::read(&file).is_ok() {
        command.uid(65534).gid(65534);
    }
    let Ok(mut child) = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() else {
        println!("left out: this user may read everything and cannot become another one");
        return;
    };
    std::thread::sleep(Duration::from_millis(800));
    assert!(child.try_wait().unwrap().is_none(), "{}", text(&child.wait_with_output().unwrap().stderr));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "one\n");
    signal(&child, "TERM");
    let output = wait(child);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn a_plugin_with_too_little_memory_or_time_is_refused_before_the_start() {
    let place = Place::new();
    let operator = |limits: &str| {
        let plugin = plugin("passthrough.wasm");
        format!(
            "operators: [{{uid: op, plugin: {plugin}, inputs: [in], limits: {{{limits}}}}}]\nsinks: [{{uid: out, type: discard, inputs: [op]}}]\nCHECKPOINTS"
        )
    };
    for (limits, says) in [
        ("memory: 0", "/operators/0/limits/memory: 0 B is less than 64 KiB"),
        ("memory: 128 KiB", "that the plugin"),
        ("call-timeout: 0", "/operators/0/limits/call-timeout: must be at least 1ms"),
    ] {
        let job = place.job("type: generator, count: 10", &operator(limits));
        for arguments in [vec!["validate", &job], vec!["run", "--quiet", &job]] {
            let output = wait(place.command(&arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
            assert!(said.contains(says) && said.contains("1 fault"), "{said}");
        }
    }
}

#[test]
fn faults_of_plugins_are_told_together_with_those_of_the_document() {
    let place = Place::new();
    let operators = format!(
        "operators:\n- {{uid: a, plugin: gone.wasm, inputs: [in]}}\n- {{uid: b, plugin: {}, inputs: [in]}}\n\
         sinks: [{{uid: out, type: discard, inputs: [a, b.side], colour: red}}]",
        plugin("running-total.wasm")
    );
    let job = place.job("type: generator, cuont: 1", &operators);
    for command in ["validate", "plan", "run"] {
        let output = wait(place.command(&[command, &job]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        for path in [
            "/sources/0/cuont: ",
            "/operators/0/plugin: there is no plugin",
            "/operators/1/inputs/0/key-by: is missing",
            "/sinks/0/inputs/1: the plugin",
            "/sinks/0/colour: ",
        ] {
            assert!(said.contains(path), "{command}: {path} in {said}");
        }
        assert!(said.ends_with("5 faults\n"), "{said}");
    }
}

#[test]
fn a_job_without_checkpoints_does_not_say_that_it_goes_on() {
    let place = Place::new();
    let job = place.job("type: generator, rate: 100", "sinks: [{uid: out, type: discard, inputs: [in]}]");
    let mut child = place.command(&["run", "--log-level", "info", &job]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    // The first line of the progress.
    until(&mut said, "running");
    signal(&child, "INT");
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert_eq!(wait(child).status.code(), Some(0), "{rest}");
    assert!(
        rest.contains("stopping; a second signal") && rest.contains("keeps no checkpoints, so the same command begins again"),
        "{rest}"
    );
    assert!(!rest.contains("goes on"), "{rest}");
}

/// Reads lines until one has the words.
fn until(said: &mut impl BufRead, words: &str) {
    let mut line = String::new();
    while !line.contains(words) {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it did not say {words}");
    }
}

#[test]
fn a_signal_while_the_job_is_starting_ends_it() {
    let place = Place::new();
    // Reading the plugin from a pipe that nobody writes to takes for ever.
    let made = Command::new("mkfifo").arg(place.path("slow.wasm")).status().unwrap();
    assert!(made.success());
    let operators =
        "operators: [{uid: op, plugin: slow.wasm, inputs: [in]}]\nsinks: [{uid: out, type: discard, inputs: [op]}]\nCHECKPOINTS";
    let job = place.job("type: generator", operators);
    for name in ["TERM", "INT"] {
        let child = place.command(&["run", &job]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(500));
        signal(&child, name);
        let output = wait(child);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("was stopped before it began"), "{}", text(&output.stderr));
    }
    assert!(!place.path("checkpoints/job").exists());
}

#[test]
fn an_address_that_is_taken_is_told_before_the_job_begins() {
    let place = Place::new();
    let job = place.job("type: generator, count: 10", DISCARD);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let (code, said) = place.run(&["--status-address", &taken.local_addr().unwrap().to_string(), &job]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the status cannot be served at 127.0.0.1:") && said.contains("give another port, or 0"), "{said}");
    assert!(!place.path("checkpoints").exists());
    let (code, said) = place.run(&["--status-address", "127.0.0.1:0", &job]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("the status is served at http://127.0.0.1:"), "{said}");
}

#[test]
fn a_checkpoint_that_is_not_there_is_told_with_what_there_is() {
    let place = Place::new();
    let job = place.job("type: generator, count: 10", DISCARD);
    assert_eq!(place.run(&[&job]).0, Some(0));
    for (path, says) in [
        (
            "/nope",
            "there is no checkpoint at /nope: its file /nope/_metadata is not there; give the folder of one, {dir}/{job}/chk-{number}",
        ),
        ("nope", "its file nope/_metadata is not there"),
        ("checkpoints/job/chk-99", "in checkpoints/job there are chk-"),
        ("checkpoints/job", "in checkpoints/job there are chk-"),
        ("file:///nope/job/chk-1", "its file /nope/job/chk-1/_metadata is not there"),
        ("file://nope/job/chk-1", "write file:///nope"),
    ] {
        let (code, said) = place.run(&["--from-checkpoint", path, &job]);
        assert!(code == Some(2) || code == Some(1), "{path}: {code:?} {said}");
        assert!(said.contains(says), "{path}: {said}");
    }
}

#[test]
fn keys_that_are_none_are_told_with_place_and_advice() {
    let place = Place::new();
    let plugin = plugin("running-total.wasm");
    for (line, says) in [
        (
            r#"{"user":{"name":"a"}}"#,
            "an object is at /user, where a string, a number or a boolean is needed: point at a value inside of it",
        ),
        (r#"{"user":["a"]}"#, "a list is at /user"),
        (r#"{"user":null}"#, "null is at /user, which is no key"),
        (r#"{"name":"a"}"#, "there is nothing at /user"),
        ("user", "the value is not JSON"),
    ] {
        fs::write(place.path("in.jsonl"), format!("{line}\n")).unwrap();
        let operators = format!(
            "operators: [{{uid: op, plugin: {plugin}, inputs: [{{from: in, key-by: {{json-pointer: /user}}}}]}}]\nsinks: [{{uid: out, type: discard, inputs: [op]}}]"
        );
        let (code, said) = place.run(&[&place.job("type: file, path: in.jsonl", &operators)]);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("on the way to op, the record at source in, split in.jsonl@") && said.contains("position 0"), "{said}");
        assert!(said.contains(says) && said.contains("correct `key-by` or the record"), "{said}");
    }
}

#[test]
fn leftovers_of_dead_runs_go_with_the_next_run() {
    let place = Place::new();
    fs::create_dir(place.path("out")).unwrap();
    let leftovers = |state: &str| format!("out/.part-out@job-00000-000007-000000000.jsonl.{state}");
    let sink = |guarantee: &str| {
        format!("sinks: [{{uid: out, type: file, path: out, inputs: [in], delivery-guarantee: {guarantee}}}]\nCHECKPOINTS")
    };
    for (guarantee, arguments) in [("exactly-once", &[][..]), ("at-least-once", &["--fresh", "--allow-duplicate-output"])] {
        fs::write(place.path(&leftovers("in-progress")), "x").unwrap();
        std::thread::sleep(Duration::from_millis(30));
        let job = place.job("type: generator, count: 10", &sink(guarantee));
        let (code, said) = place.run(&[arguments, &[&job]].concat());
        assert_eq!(code, Some(0), "{said}");
        assert!(!place.path(&leftovers("in-progress")).exists(), "{guarantee}");
    }
}

mod changes;
