//! Compiled components on disk, so that a second start does not compile.
//!
//! One file for each (component digest, engine version and settings). Layout: the magic `WWCODE1\n`, `u64` length of the code and `u64`
//! XXH3-64 of it, both little-endian, then the code. Files are written to a temporary name and renamed, so a reader never meets half a file;
//! what a disk damaged later, the checksum finds. It guards against damage, not against an attacker: the folder is made for its owner alone.

use super::Digest;
use std::fs;
use std::hash::Hasher;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use wasmtime::Engine;
use wasmtime::component::Component;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

const MAGIC: &[u8; 8] = b"WWCODE1\n";
const HEAD_BYTES: usize = 24;

/// The folder of compiled components, for one engine.
#[derive(Clone, Debug)]
pub(super) struct CodeCache {
    folder: PathBuf,
    /// Hash of the engine's version and of all settings that compiled code depends on.
    settings: u64,
}

/// What looking for a component came to.
pub(super) enum Lookup {
    /// It was there, whole.
    Found(Component),
    /// It was never compiled with these settings.
    Missing,
    /// There is a file, but it cannot be used: a sentence.
    Unusable(String),
}

impl CodeCache {
    pub(super) fn new(folder: PathBuf, engine: &Engine) -> Self {
        let mut hasher = Xxh3::new();
        std::hash::Hash::hash(&engine.precompile_compatibility_hash(), &mut hasher);
        Self { folder, settings: hasher.finish() }
    }

    pub(super) fn path(&self, digest: &Digest) -> PathBuf {
        self.folder.join(format!("{}-{:016x}.cwasm", digest.hex(), self.settings))
    }

    pub(super) fn find(&self, engine: &Engine, digest: &Digest) -> Lookup {
        let path = self.path(digest);
        let file = match fs::read(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Lookup::Missing,
            Err(error) => return Lookup::Unusable(format!("{}: {error}", path.display())),
        };
        let loaded = checked_code(&file).and_then(|code| load(engine, code));
        match loaded {
            Ok(component) => Lookup::Found(component),
            Err(sentence) => Lookup::Unusable(format!("{}: {sentence}", path.display())),
        }
    }

    pub(super) fn store(&self, digest: &Digest, component: &Component) -> Result<(), String> {
        let path = self.path(digest);
        let place = |error: io::Error| format!("{}: {error}", path.display());
        let code = component.serialize().map_err(|error| format!("{digest}: {error}"))?;
        create_private_folder(&self.folder).map_err(place)?;
        let temporary = self.folder.join(temporary_name());
        let written = write_file(&temporary, &code).and_then(|()| fs::rename(&temporary, &path));
        if written.is_err() {
            // The error of the write is the one to tell; a file that was never made cannot be removed.
            let _ = fs::remove_file(&temporary);
        }
        written.map_err(place)
    }
}

/// The code of a cache file, if the file is one and whole.
fn checked_code(file: &[u8]) -> Result<&[u8], String> {
    let (head, code) = file.split_at_checked(HEAD_BYTES).ok_or("the file is cut short")?;
    if &head[..8] != MAGIC {
        return Err("this is not a compiled component".into());
    }
    if head[8..16] != (code.len() as u64).to_le_bytes() {
        return Err("the file is cut short, or something was appended".into());
    }
    if head[16..] != xxh3_64(code).to_le_bytes() {
        return Err("the checksum does not match".into());
    }
    Ok(code)
}

/// The one place where machine code that was not compiled a moment ago is taken over.
#[allow(unsafe_code, reason = "loading compiled code is unsafe by nature; see SAFETY")]
fn load(engine: &Engine, code: &[u8]) -> Result<Component, String> {
    // SAFETY: `deserialize` asks for bytes that `Component::serialize` made. They come from a file that only `store` writes, in a folder
    // that belongs to this user alone, and `checked_code` found them unchanged. The engine itself refuses another version or settings.
    unsafe { Component::deserialize(engine, code) }.map_err(|error| format!("{error:#}"))
}

fn write_file(path: &Path, code: &[u8]) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(MAGIC)?;
    file.write_all(&(code.len() as u64).to_le_bytes())?;
    file.write_all(&xxh3_64(code).to_le_bytes())?;
    file.write_all(code)
}

/// A name that no other write uses, of this process or another.
fn temporary_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!(".{}-{}.tmp", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn create_private_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}
