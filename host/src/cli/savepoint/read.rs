//! `waterwheel savepoint read PATH`: state as lines of JSON.

use super::Outcome;
use crate::Error;
use crate::checkpoint::savepoint::{self, Found};
use crate::state::{Entries, StateLine, StateReader};
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::PathBuf;

/// The names of the host's own states begin so.
const HIDDEN: &str = "waterwheel.";

/// What, and where to.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The folder of the savepoint, or of a checkpoint, `{dir}/{job}/chk-{number}`.
    path: String,
    /// Only the state of this operator.
    #[arg(long, value_name = "UID")]
    operator: Option<String>,
    /// Only this state. The host's own, such as `waterwheel.timers`, are shown only when they are named.
    #[arg(long, value_name = "NAME")]
    state: Option<String>,
    /// Only this key.
    #[arg(long)]
    key: Option<String>,
    /// Write into this file.
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

pub(super) async fn run(arguments: &Arguments) -> Outcome {
    let found = savepoint::find(&arguments.path).await?;
    let operators: Vec<String> = found.manifest.snapshot.operators.keys().cloned().collect();
    if let Some(wanted) = arguments.operator.as_ref().filter(|wanted| !operators.contains(wanted)) {
        return Err(Error::user(format!("{} has no operator {wanted}; there are: {}", found.path, operators.join(", "))));
    }
    let mut output = Output::open(arguments)?;
    let written = all(arguments, &found, &operators, &mut output).await?;
    output.finish()?;
    if let Some(file) = &arguments.to {
        return Ok(format!("{written} entries written to {}\n", file.display()));
    }
    Ok(String::new())
}

async fn all(arguments: &Arguments, found: &Found, operators: &[String], output: &mut Output) -> Result<u64, Error> {
    let mut written = 0;
    for uid in operators.iter().filter(|uid| arguments.operator.as_ref().is_none_or(|wanted| wanted == *uid)) {
        let mut reader = reader(found, uid).await?;
        while let Some(entries) = reader.next_entries().await.map_err(|(file, error)| damaged(&file, &error))? {
            let is_shown = match &arguments.state {
                Some(wanted) => entries.state == *wanted,
                None => !entries.state.starts_with(HIDDEN),
            };
            if is_shown {
                written += lines(arguments, uid, &entries, output)?;
            }
            if output.is_closed {
                return Ok(written);
            }
        }
    }
    Ok(written)
}

fn lines(arguments: &Arguments, uid: &str, entries: &Entries, output: &mut Output) -> Result<u64, Error> {
    let wanted = arguments.key.as_deref().map(str::as_bytes);
    let mut written = 0;
    for entry in entries.iter().filter(|entry| wanted.is_none_or(|wanted| wanted == entry.key)) {
        output.line(&StateLine::of(uid, &entries.state, entries.version, &entry).to_json())?;
        written += 1;
    }
    Ok(written)
}

/// All entries of an operator, each once.
pub(super) async fn reader(found: &Found, uid: &str) -> Result<StateReader, Error> {
    let groups = found.max_parallelism();
    match found.manifest.snapshot.operators.get(uid) {
        Some(operator) => Ok(StateReader::new(found.chains(operator).await?, 0..groups, groups)),
        None => Ok(StateReader::empty()),
    }
}

pub(super) fn damaged(file: &str, error: &crate::state::StateFileError) -> Error {
    Error::external(format!("the state file {file} is {error}")).with_retry(false)
}

/// Where lines go.
struct Output {
    writer: Box<dyn Write>,
    name: String,
    /// Whoever reads has seen enough.
    is_closed: bool,
}

impl Output {
    fn open(arguments: &Arguments) -> Result<Self, Error> {
        let Some(path) = &arguments.to else {
            return Ok(Self { writer: Box::new(BufWriter::new(io::stdout())), name: "the standard output".to_owned(), is_closed: false });
        };
        let name = path.display().to_string();
        let file = File::create(path).map_err(|error| Error::user(format!("{name} cannot be written")).caused_by(error))?;
        Ok(Self { writer: Box::new(BufWriter::new(file)), name, is_closed: false })
    }

    fn line(&mut self, text: &str) -> Result<(), Error> {
        let written = writeln!(self.writer, "{text}");
        self.check(written)
    }

    fn finish(mut self) -> Result<(), Error> {
        let flushed = self.writer.flush();
        self.check(flushed)
    }

    fn check(&mut self, written: io::Result<()>) -> Result<(), Error> {
        match written {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(())
            }
            written => written.map_err(|error| Error::external(format!("cannot write to {}", self.name)).caused_by(error)),
        }
    }
}
