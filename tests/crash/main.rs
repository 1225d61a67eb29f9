//! Black box: runs the binary `waterwheel` as a process, kills it at every step of the protocol and at random moments, damages what it keeps, and
//! compares the output with what a program of its own computes: nothing missing, nothing twice, the order of each key kept, its totals right.
//!
//! `WATERWHEEL_KILLS` is the number of random kills, by default 25; `WATERWHEEL_SEED` repeats a run; `WATERWHEEL_PLUGINS` is the folder of the
//! sample plugins, by default `target/plugins`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod check;
mod damage;
mod forks;
mod full_disk;
mod instances;
mod job;
mod kills;
mod orders;
mod plugins;
mod points;
mod process;
mod ready_made;
mod rescale;
mod savepoints;
mod stops;
mod windows;
mod wrong_files;
