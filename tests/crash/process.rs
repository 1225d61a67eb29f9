//! A running host: started, signalled, waited for; what it says is kept.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take before the test gives up; generous, for machines that are busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(3);

/// A process of the host. It is killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    said: PathBuf,
}

/// How a process ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// All that it wrote to its standard error.
    pub(crate) said: String,
}

impl Process {
    /// Starts `waterwheel run` on a job file.
    pub(crate) fn start(job: &Path, arguments: &[&str], failpoints: &str, said: PathBuf) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_waterwheel"));
        command.arg("run").arg(job).args(arguments).env("FAILPOINTS", failpoints).env_remove("WATERWHEEL_LOG");
        command.env("WATERWHEEL_PLUGIN_CACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("plugin-cache"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&said).unwrap()).spawn().unwrap();
        Self { child, said }
    }

    /// What it has said so far.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap()
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.id().to_string()).status().unwrap();
        assert!(sent.success(), "the signal {name} could not be sent");
    }

    /// SIGKILL: it gets no chance to do anything. Whether it was still running.
    pub(crate) fn kill(mut self) -> bool {
        let running = self.child.try_wait().unwrap().is_none();
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        running
    }

    /// Waits until something holds while the process runs. Panics when the process ends before.
    pub(crate) fn wait_until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let began = Instant::now();
        while !holds(self) {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the host ended ({status}) before {what}:\n{}", self.said());
            }
            assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}:\n{}", self.said());
            std::thread::sleep(POLL);
        }
    }

    /// Waits for its end.
    pub(crate) fn wait(mut self) -> Ended {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Ended { status, said: self.said() };
            }
            assert!(began.elapsed() < PATIENCE, "the host did not end within {PATIENCE:?}:\n{}", self.said());
            std::thread::sleep(POLL);
        }
    }

    /// Whether it still runs.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended cannot be killed again.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

impl Ended {
    /// It ended with this exit code, and said all of these words.
    #[track_caller]
    pub(crate) fn expect(&self, code: i32, words: &[&str]) {
        assert_eq!(self.status.code(), Some(code), "{}, said:\n{}", self.status, self.said);
        for word in words {
            assert!(self.said.contains(word), "it did not say `{word}`:\n{}", self.said);
        }
    }

    /// It was ended by a failpoint, as by a crash.
    #[track_caller]
    pub(crate) fn expect_abort(&self, point: &str) {
        const SIGABRT: i32 = 6;
        assert_eq!(self.status.signal(), Some(SIGABRT), "it did not crash at {point} ({}), said:\n{}", self.status, self.said);
    }
}
