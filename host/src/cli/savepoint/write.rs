//! `waterwheel savepoint write FILE --job NAME --to PATH`: a savepoint of lines of JSON.

use super::Outcome;
use crate::Error;
use crate::checkpoint::savepoint::write::Gathered;
use crate::checkpoint::savepoint::{self, Target};
use crate::cli::checkpoint::bytes;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

/// From what, for whom, and where.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The lines, as `savepoint read` writes them: {"operator":…,"state":…,"key":…,"value":…}, with a "subkey" where a state has several entries
    /// a key, and a "version" where it is not 1. By default the standard input.
    #[arg(default_value = "-")]
    file: String,
    /// The name of the job that is to begin with this state.
    #[arg(long, value_name = "NAME")]
    job: String,
    /// The job's max-parallelism.
    #[arg(long, value_name = "NUMBER", default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..))]
    max_parallelism: u16,
    /// The folder of the savepoint.
    #[arg(long, value_name = "PATH")]
    to: String,
}

pub(super) async fn run(arguments: &Arguments) -> Outcome {
    let target = Target::new(Some(&arguments.to), None)?;
    let gathered = gather(&arguments.file)?;
    let entries = gathered.entries();
    if entries == 0 {
        return Err(Error::user(format!("{}: there is no entry in it", name(&arguments.file))));
    }
    let (path, manifest) = savepoint::write(gathered, &arguments.job, arguments.max_parallelism, &target).await?;
    let size = bytes(manifest.snapshot.full_bytes());
    let operators = manifest.snapshot.operators.keys().cloned().collect::<Vec<_>>().join(", ");
    Ok(format!("savepoint {path} for job {}: {entries} entries of {operators}, {size}\n", manifest.job_name))
}

fn name(file: &str) -> &str {
    if file == "-" { "the standard input" } else { file }
}

fn gather(file: &str) -> Result<Gathered, Error> {
    let unreadable = |error: io::Error| Error::user(format!("{} cannot be read", name(file))).caused_by(error);
    let input: Box<dyn BufRead> = match file {
        "-" => Box::new(io::stdin().lock()),
        path => Box::new(BufReader::new(File::open(Path::new(path)).map_err(unreadable)?)),
    };
    let mut gathered = Gathered::default();
    for line in input.lines() {
        let line = line.map_err(unreadable)?;
        gathered.add(&line).map_err(|error| Error::user(format!("{}, {error}", name(file))))?;
    }
    Ok(gathered)
}
