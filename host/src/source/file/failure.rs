//! Errors of the operating system in words: what was tried, on which path, what to do about it, and whether waiting can help.

use crate::Error;
use rustix::io::Errno;
use std::io::{self, ErrorKind};
use std::path::Path;

/// An error about a path. What somebody has to change (rights, links, the path itself) is not tried again; what may pass is.
pub(super) fn failure(action: &str, path: &Path, error: io::Error) -> Error {
    let (advice, retry) = match (error.kind(), Errno::from_io_error(&error)) {
        (ErrorKind::PermissionDenied, _) => ("; give the user of this process the right to read it, or choose a path without it", false),
        (_, Some(Errno::LOOP)) => ("; a symbolic link there leads back to itself: repair it, or give another path", false),
        (_, Some(Errno::MFILE | Errno::NFILE)) => ("; raise the limit of open files (ulimit -n)", true),
        (ErrorKind::NotADirectory | ErrorKind::IsADirectory | ErrorKind::InvalidFilename | ErrorKind::InvalidInput, _) => {
            ("; correct the path", false)
        }
        _ => ("", true),
    };
    Error::external(format!("cannot {action} {}{advice}", path.display())).with_retry(retry).caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let of = |errno: Errno| failure("read", Path::new("a.log"), errno.into());
        for (errno, says) in
            [(Errno::ACCESS, "the right to read"), (Errno::LOOP, "leads back to itself"), (Errno::NOTDIR, "correct the path")]
        {
            let error = of(errno);
            assert!(error.to_string().starts_with("cannot read a.log; ") && error.to_string().contains(says), "{error}");
            assert!(!error.retry_helps(), "{error}");
        }
        assert!(of(Errno::MFILE).to_string().contains("ulimit -n"));
        for errno in [Errno::MFILE, Errno::IO, Errno::STALE] {
            assert!(of(errno).retry_helps(), "{errno}");
        }
    }
}
