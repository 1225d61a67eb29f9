//! What the file sink does to the disk, made durable, with errors that name the path and what to do.

use crate::Error;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::SystemTime;

/// An error of the operating system in words: what was tried, on which path, and what to do about it.
pub(super) fn failure(action: &str, path: &Path, error: io::Error) -> Error {
    let (advice, retry) = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => ("; free space on that disk, or give the sink another path", true),
        ErrorKind::FileTooLarge => ("; set a smaller `roll-size`, or raise the limit of file sizes", false),
        ErrorKind::PermissionDenied => ("; give the user of this process the right to write there, or give the sink another path", false),
        ErrorKind::ReadOnlyFilesystem => ("; that disk is mounted read-only: give the sink another path", false),
        ErrorKind::NotADirectory => ("; a part of that path is a file: move it away, or give the sink another path", false),
        _ => ("", true),
    };
    Error::external(format!("cannot {action} {}{advice}", path.display())).with_retry(retry).caused_by(error)
}

/// Creates a folder and those above it, and makes their entries durable.
pub(super) fn create_folders(folder: &Path) -> Result<(), Error> {
    match fs::metadata(folder) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => return Err(failure("create the folder", folder, ErrorKind::NotADirectory.into())),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(failure("look at", folder, error)),
    }
    if let Some(parent) = folder.parent() {
        create_folders(parent)?;
    }
    match fs::create_dir(folder) {
        Ok(()) => {}
        // Another writer was faster.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && folder.is_dir() => {}
        Err(error) => return Err(failure("create the folder", folder, error)),
    }
    match folder.parent() {
        Some(parent) => sync_folder(parent),
        None => Ok(()),
    }
}

/// Makes the entries of a folder durable: what was created, renamed or deleted in it survives a power failure.
pub(super) fn sync_folder(folder: &Path) -> Result<(), Error> {
    File::open(folder).and_then(|opened| opened.sync_all()).map_err(|error| failure("sync the folder", folder, error))
}

/// What time it is by the clock that gives files their times, which on another machine's disk is another one than ours; none where the folder
/// is not there or does not tell. The folder's own time of change is moved by it.
pub(super) fn now_in(folder: &Path) -> Option<SystemTime> {
    use rustix::fs::{Timespec, Timestamps, UTIME_NOW, futimens};
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let folder = File::open(folder).ok()?;
    futimens(&folder, &Timestamps { last_access: now, last_modification: now }).ok()?;
    folder.metadata().ok()?.modified().ok()
}

/// Renames a file, and refuses to overwrite another: `AlreadyExists` then.
pub(super) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use rustix::io::Errno;
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // File systems that cannot do it in one step.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
            result => return result.map_err(io::Error::from),
        }
    }
    rename_in_two_steps(from, to)
}

/// A crash between the steps leaves both names of one file; whoever repeats the commit removes the first.
fn rename_in_two_steps(from: &Path, to: &Path) -> io::Result<()> {
    fs::hard_link(from, to)?;
    fs::remove_file(from)
}

/// Removes a file that may be gone already; whether it was there.
pub(super) fn remove(path: &Path) -> Result<bool, Error> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(failure("delete", path, error)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn neither_way_of_renaming_overwrites() {
        for rename in [rename_new, rename_in_two_steps] {
            let folder = tempfile::tempdir().unwrap();
            let (from, to) = (folder.path().join("a"), folder.path().join("b"));
            fs::write(&from, "new").unwrap();
            fs::write(&to, "old").unwrap();
            assert_eq!(rename(&from, &to).unwrap_err().kind(), ErrorKind::AlreadyExists);
            assert_eq!(fs::read(&to).unwrap(), b"old");
            fs::remove_file(&to).unwrap();
            rename(&from, &to).unwrap();
            assert_eq!(fs::read(&to).unwrap(), b"new");
            assert_eq!(rename(&from, &to).unwrap_err().kind(), ErrorKind::NotFound);
        }
    }

    #[test]
    fn a_file_in_the_way_of_a_folder_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        for path in [file.clone(), file.join("below")] {
            let message = create_folders(&path).unwrap_err().chain();
            assert!(message.contains("file") && message.contains("move it away"), "{message}");
        }
    }
}
