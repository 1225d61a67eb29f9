//! `waterwheel run job.yaml`: one job in the foreground.

use super::progress::Progress;
use super::{fail, say};
use crate::Host;
use crate::api::StatusListener;
use crate::checkpoint::protocol::MissingMarker;
use crate::checkpoint::recovery::StartOptions;
use crate::checkpoint::savepoint::Target;
use crate::host::{JobControl, JobEnd, JobHandle, StopOptions, SubmitError, SubmitOptions};
use crate::pipeline::job::Draft;
use crate::pipeline::plan::LoadedPlugins;
use crate::pipeline::{Connectors, Job};
use crate::telemetry::{self, LogFormat};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit code of a job that a newer run of it has superseded.
const SUPERSEDED: u8 = 3;
/// Exit code of a process that was interrupted: a second signal, or a job that was cancelled.
const INTERRUPTED: u8 = 130;

/// A job file, and where the job starts.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The job file, YAML or JSON.
    file: PathBuf,
    /// Start from this checkpoint: `latest`, its number, or the path of its folder or of a savepoint. By default from the newest completed one.
    #[arg(long, visible_alias = "from-savepoint", value_name = "latest|NUMBER|PATH")]
    from_checkpoint: Option<String>,
    /// The savepoint that the job starts from belongs to it, and is deleted once the job has completed a checkpoint of its own.
    #[arg(long, requires = "from_checkpoint")]
    claim: bool,
    /// Begin again, whatever checkpoints there are.
    #[arg(long, conflicts_with = "from_checkpoint")]
    fresh: bool,
    /// Leave state behind that no operator of the job claims.
    #[arg(long, short = 'n')]
    allow_non_restored_state: bool,
    /// Start from an older checkpoint although output after it is visible and will be repeated.
    #[arg(long)]
    allow_duplicate_output: bool,
    /// Take over from a job whose log cannot be reached: nothing then stops an instance of it that still runs.
    #[arg(long)]
    take_over_prefix: bool,
    /// What to take for granted when it cannot be read any more whether the newest checkpoint's transaction was committed.
    #[arg(long, value_name = "committed|aborted", value_parser = missing_marker)]
    marker_missing: Option<MissingMarker>,
    /// If the newest checkpoint is damaged, start from the one before, although that repeats or loses output.
    #[arg(long)]
    older_than_damaged: bool,
    /// When a signal stops the job, leave a savepoint in this folder, or with `/` at the end in a folder of its own below it. Without a path: below
    /// the job's savepoint-dir.
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = "")]
    savepoint_on_stop: Option<String>,
    /// When a signal stops the job, run event time to its end before: windows and timers fire, and the job has then finished.
    #[arg(long)]
    drain: bool,
    /// Serve the state, the checkpoints and the metrics of the job over HTTP at this address.
    #[arg(long, value_name = "ADDRESS:PORT")]
    status_address: Option<SocketAddr>,
    /// Where compiled plugins are kept. By default `waterwheel` in the user's cache folder.
    #[arg(long, value_name = "FOLDER", env = "WATERWHEEL_PLUGIN_CACHE")]
    plugin_cache: Option<PathBuf>,
    /// Show no progress.
    #[arg(long, short)]
    quiet: bool,
    /// How log lines are written.
    #[arg(long, value_enum, default_value_t)]
    log_format: LogFormat,
    /// What is logged: `error`, `warn`, `info`, `debug`, `trace`, or directives such as `waterwheel=debug`.
    #[arg(long, env = "WATERWHEEL_LOG", default_value = "warn")]
    log_level: String,
}

fn missing_marker(word: &str) -> Result<MissingMarker, String> {
    match word {
        "committed" => Ok(MissingMarker::Committed),
        "aborted" => Ok(MissingMarker::Aborted),
        _ => Err("say committed or aborted".to_owned()),
    }
}

/// Runs the command.
pub(super) fn run(arguments: &Arguments, connectors: &Connectors) -> ExitCode {
    if let Err(error) = telemetry::init(arguments.log_format, &arguments.log_level) {
        return fail(&error.to_string(), super::WRONG_SPECIFICATION);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match runtime {
        Ok(runtime) => {
            let code = runtime.block_on(run_job(arguments, connectors));
            // What blocks (a read of a terminal, a stuck disk) must not keep the process.
            runtime.shutdown_background();
            code
        }
        Err(error) => fail(&format!("the runtime cannot be started: {error}"), 1),
    }
}

async fn run_job(arguments: &Arguments, connectors: &Connectors) -> ExitCode {
    let mut builder = Host::builder().connectors(connectors.clone());
    if let Some(folder) = arguments.plugin_cache.clone().or_else(default_cache) {
        builder = builder.plugin_cache(folder);
    }
    let host = match builder.build() {
        Ok(host) => host,
        Err(error) => return fail(&error.chain(), 1),
    };
    let mut signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => return fail(&format!("signals cannot be handled: {error}"), 1),
    };
    // Loading plugins and reaching the storage take their time; nothing has begun until then.
    let started = tokio::select! {
        biased;
        started = start(arguments, &host) => started,
        () = signals.next() => {
            say(&format!("{}: the job was stopped before it began", arguments.file.display()));
            return ExitCode::SUCCESS;
        }
    };
    let (handle, listener) = match started {
        Ok(started) => started,
        Err(code) => return code,
    };
    let control = handle.control();
    if let Some(listener) = listener {
        crate::api::serve_status(listener, control.clone(), host.metrics().clone());
    }
    let progress = (!arguments.quiet).then(|| Progress::start(control.clone()));
    let how = StopOptions { savepoint: arguments.savepoint_on_stop.clone(), drain: arguments.drain };
    let stopping = tokio::spawn(stop_on_signal(signals, control.clone(), how));
    let end = handle.wait().await;
    stopping.abort();
    if let Some(progress) = progress {
        progress.end().await;
    }
    conclude(&arguments.file, &end, &control)
}

/// Checks the job and submits it. The address of the status is taken before: a job whose status nobody can see is not begun.
async fn start(arguments: &Arguments, host: &Host) -> Result<(JobHandle, Option<StatusListener>), ExitCode> {
    let draft = Draft::read(&arguments.file, host.connectors());
    if let Some((spec, base)) = draft.spec().filter(|_| !draft.is_right()) {
        let plugins = LoadedPlugins::of_spec(spec, base, host.plugins()).await;
        return match draft.into_plan(&plugins) {
            Ok(_) => Err(fail("a wrong job file has become right while it was read", 1)),
            Err(faults) => Err(super::report(&arguments.file, &faults)),
        };
    }
    let job = draft.into_job().map_err(|faults| super::report(&arguments.file, &faults))?;
    if let Some(to) = &arguments.savepoint_on_stop {
        check_savepoint(to, &job).await?;
    }
    let listener = match arguments.status_address {
        Some(address) => Some(listen(address).await?),
        None => None,
    };
    let options = SubmitOptions {
        from_checkpoint: arguments.from_checkpoint.clone(),
        fresh: arguments.fresh,
        allow_non_restored_state: arguments.allow_non_restored_state,
        claim: arguments.claim,
        allowed: StartOptions {
            allow_duplicate_output: arguments.allow_duplicate_output,
            take_over_prefix: arguments.take_over_prefix,
            older_than_damaged: arguments.older_than_damaged,
            missing_marker: arguments.marker_missing.unwrap_or_default(),
            ..StartOptions::default()
        },
    };
    let handle = host.submit(&job, options).await.map_err(|error| match error {
        SubmitError::Plan(faults) => super::report(&arguments.file, &faults),
        error @ SubmitError::Options(_) => fail(&error.to_string(), super::WRONG_SPECIFICATION),
        error => fail(&error.to_string(), 1),
    })?;
    Ok((handle, listener))
}

/// A savepoint that could not be made when the job is stopped is refused when it is started.
async fn check_savepoint(to: &str, job: &Job) -> Result<(), ExitCode> {
    let wrong = |sentence: String| fail(&format!("--savepoint-on-stop: {sentence}"), super::WRONG_SPECIFICATION);
    let Some(checkpointing) = &job.settings().checkpointing else {
        return Err(wrong("the job has no checkpoints: set execution.checkpointing".to_owned()));
    };
    let target = Target::new(Some(to), checkpointing.savepoint_dir.as_deref()).map_err(|error| wrong(error.to_string()))?;
    target.check().await.map_err(|error| wrong(error.to_string()))
}

async fn listen(address: SocketAddr) -> Result<StatusListener, ExitCode> {
    let listener = crate::api::listen(address).await.map_err(|error| {
        let advice = match error.kind() {
            ErrorKind::AddrInUse => {
                "; another program, perhaps another job, has this address: give another port, or 0 for one that is free"
            }
            ErrorKind::AddrNotAvailable => {
                "; this machine has no such address: 127.0.0.1 is seen from this machine alone, 0.0.0.0 is all it has"
            }
            ErrorKind::PermissionDenied => "; give a port above 1023, or this process the right to use it",
            _ => "",
        };
        fail(&format!("the status cannot be served at {address}: {error}{advice}"), 1)
    })?;
    if address.port() == 0 {
        say(&format!("the status is served at http://{}", listener.address()));
    }
    Ok(listener)
}

/// Says how the job ended, and gives the exit code.
fn conclude(file: &Path, end: &JobEnd, control: &JobControl) -> ExitCode {
    let status = control.status();
    let name = &status.name;
    let mut last = status.checkpoints.latest.completed.as_ref().map_or_else(String::new, |last| format!(", last checkpoint {}", last.id));
    if let Some(path) = status.checkpoints.latest.savepoint.as_ref().and_then(|savepoint| savepoint.external_path.as_ref()) {
        last += &format!(", savepoint {path}");
    }
    match end {
        JobEnd::Finished => {
            say(&format!("job {name} has finished{last}"));
            ExitCode::SUCCESS
        }
        JobEnd::AlreadyFinished { job, checkpoint } => {
            say(&format!(
                "job {name} had finished before (incarnation {job}, checkpoint {checkpoint}): nothing to do; --fresh --allow-duplicate-output begins again"
            ));
            ExitCode::SUCCESS
        }
        JobEnd::Stopped => {
            say(&match (has_checkpoints(control), last.is_empty()) {
                (false, _) => format!("job {name} was stopped; it keeps no checkpoints, so the same command begins again"),
                (true, true) => format!("job {name} was stopped; the same command goes on from its newest checkpoint"),
                (true, false) => format!("job {name} was stopped{last}; the same command goes on from there"),
            });
            ExitCode::SUCCESS
        }
        JobEnd::Cancelled => fail(&format!("job {name} was cancelled{last}"), INTERRUPTED),
        JobEnd::Superseded(message) => fail(message, SUPERSEDED),
        JobEnd::Failed(error) => fail(&format!("{}: job {name} failed: {}", file.display(), error.chain()), 1),
    }
}

fn has_checkpoints(control: &JobControl) -> bool {
    control.plan().settings.checkpointing.is_some()
}

/// Where compiled plugins are kept when nobody says: the user's cache folder.
fn default_cache() -> Option<PathBuf> {
    let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = of("XDG_CACHE_HOME").filter(|path| path.is_absolute()).or_else(|| Some(of("HOME")?.join(".cache")));
    cache.map(|cache| cache.join("waterwheel"))
}

/// The signals that end a job.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// The first signal stops the job with a last checkpoint, the second one ends the process at once.
async fn stop_on_signal(mut signals: Signals, control: JobControl, options: StopOptions) {
    signals.next().await;
    let has_checkpoints = has_checkpoints(&control);
    let how = match (has_checkpoints, &options.savepoint) {
        (true, Some(_)) => " with a last checkpoint and a savepoint",
        (true, None) => " with a last checkpoint",
        (false, _) => "",
    };
    say(&format!("stopping{how}; a second signal ends at once"));
    let stopping = tokio::spawn(async move {
        if let Err(sentence) = control.stop_with(options).await {
            say(&format!("no savepoint can be made, and the job goes on: {sentence}; a second signal ends at once"));
        }
    });
    signals.next().await;
    stopping.abort();
    say(if has_checkpoints {
        "interrupted: the job goes on from its last completed checkpoint when it is started again"
    } else {
        "interrupted: the job keeps no checkpoints, and begins again when it is started again"
    });
    // Nothing is left to do: what was not completed is rolled back or replayed at the next start, as after a crash.
    #[allow(clippy::exit, reason = "a second signal asks for the end of the process, not of the job")]
    std::process::exit(i32::from(INTERRUPTED));
}
