//! The commands that look at a job and do not run it, as a person meets them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod checkpoint;
mod run;
mod savepoint;
mod validate;

use std::path::Path;
use std::process::{Command, Output};

fn waterwheel(arguments: &[&str]) -> Output {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    Command::new(env!("CARGO_BIN_EXE_waterwheel")).args(arguments).current_dir(folder).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}
