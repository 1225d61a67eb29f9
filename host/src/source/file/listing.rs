//! Which files an option `path` means: one, those of a folder, or those that fit a pattern, in the order of their names.

use super::failure::failure;
use crate::Error;
use globset::{GlobBuilder, GlobMatcher};
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

/// What makes a path a pattern.
const WILDCARDS: [char; 4] = ['*', '?', '[', '{'];

/// An option `path`, taken apart.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    text: String,
    glob: Option<Glob>,
}

#[derive(Clone, Debug)]
struct Glob {
    /// The folder above the first wildcard.
    base: PathBuf,
    /// Matches paths relative to the base.
    matcher: GlobMatcher,
    /// How deep below the base files can match; none for any depth.
    depth: Option<usize>,
    /// Whether the pattern asks for names that start with a dot.
    hidden: bool,
}

/// A file that was found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Found {
    /// Relative to the folder, or the folder above the first wildcard; with `/` on every system.
    pub(super) name: String,
    /// The whole path, from the root.
    pub(super) path: String,
}

impl Pattern {
    /// Takes a path apart; whether there is such a file is not looked at.
    ///
    /// # Errors
    /// A sentence.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("is empty: write a file, a folder or a pattern such as logs/*.jsonl".to_owned());
        }
        let Some(wildcard) = text.find(WILDCARDS) else { return Ok(Self { text: text.to_owned(), glob: None }) };
        let (base, rest) = text[..wildcard].rfind('/').map_or(("", text), |slash| text.split_at(slash + 1));
        let glob = GlobBuilder::new(rest).literal_separator(true).build();
        let glob = glob.map_err(|error| format!("{text:?} is no pattern: {}", error.kind()))?;
        let depth = (!rest.contains("**")).then(|| rest.split('/').count());
        let hidden = rest.split('/').any(|part| part.starts_with('.'));
        let base = PathBuf::from(if base.is_empty() { "." } else { base });
        Ok(Self { text: text.to_owned(), glob: Some(Glob { base, matcher: glob.compile_matcher(), depth, hidden }) })
    }

    /// The files that there are now, in the order of their names; none when nothing fits.
    ///
    /// # Errors
    /// A folder that cannot be read, something that is neither file nor folder, or a name that is not UTF-8.
    pub(super) fn list(&self) -> Result<Vec<Found>, Error> {
        let path = Path::new(&self.text);
        let mut found = Vec::new();
        match (fs::metadata(path), &self.glob) {
            (Ok(metadata), _) if metadata.is_file() => found.push(file_found(path, path.file_name().unwrap_or_default().as_ref())?),
            (Ok(metadata), _) if metadata.is_dir() => walk(path, Path::new(""), Some(1), false, &|_| true, &mut found)?,
            (Ok(_), _) => return Err(Error::user(format!("{} is no file that can be read again: name a regular file", self.text))),
            (Err(error), Some(glob)) if is_absent(&error) => {
                walk(&glob.base, Path::new(""), glob.depth, glob.hidden, &|name| glob.matcher.is_match(name), &mut found)?;
            }
            (Err(error), None) if is_absent(&error) => {}
            (Err(error), _) => return Err(failure("look at", path, error)),
        }
        found.sort();
        Ok(found)
    }

    /// The path as it was written.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidFilename)
}

fn file_found(path: &Path, name: &Path) -> Result<Found, Error> {
    let text = |path: &Path| {
        let text = path.to_str().map(str::to_owned);
        text.ok_or_else(|| Error::user(format!("the name of {} is not UTF-8: rename it, or choose a path without it", path.display())))
    };
    let whole = std::path::absolute(path).map_err(|error| Error::external("cannot find the working directory").caused_by(error))?;
    Ok(Found { name: text(name)?, path: text(&whole)? })
}

/// Collects the files below `base`/`below` that are `wanted` by their path relative to the base. Links to folders are not followed: they
/// could lead back.
fn walk(
    base: &Path,
    below: &Path,
    depth: Option<usize>,
    hidden: bool,
    wanted: &dyn Fn(&Path) -> bool,
    found: &mut Vec<Found>,
) -> Result<(), Error> {
    // Joining an empty path would add a slash to the end.
    let folder = if below.as_os_str().is_empty() { base.to_owned() } else { base.join(below) };
    let failed = |error: io::Error| failure("read the folder", &folder, error);
    let entries = match fs::read_dir(&folder) {
        Err(error) if is_absent(&error) => return Ok(()),
        other => other.map_err(failed)?,
    };
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let name = below.join(entry.file_name());
        if !hidden && entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            if depth.is_none_or(|depth| depth > 1) {
                walk(base, &name, depth.map(|depth| depth - 1), hidden, wanted, found)?;
            }
        } else if wanted(&name) && (kind.is_file() || fs::metadata(entry.path()).as_ref().is_ok_and(Metadata::is_file)) {
            found.push(file_found(&entry.path(), &name)?);
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn names(pattern: &str) -> Vec<String> {
        Pattern::parse(pattern).unwrap().list().unwrap().into_iter().map(|found| found.name).collect()
    }

    #[test]
    fn files_come_in_the_order_of_their_names() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/deep")).unwrap();
        for name in ["b.log", "a.log", "c.txt", ".hidden.log", "a/d.log", "a/deep/e.log", "odd[1].log"] {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        std::os::unix::fs::symlink(folder.path().join("a"), folder.path().join("link")).unwrap();
        let root = folder.path().to_str().unwrap();
        assert_eq!(names(root), ["a.log", "b.log", "c.txt", "odd[1].log"]);
        assert_eq!(names(&format!("{root}/*.log")), ["a.log", "b.log", "odd[1].log"]);
        assert_eq!(names(&format!("{root}/.*.log")), [".hidden.log"]);
        assert_eq!(names(&format!("{root}/*/*.log")), ["a/d.log"]);
        assert_eq!(names(&format!("{root}/**/*.log")), ["a.log", "a/d.log", "a/deep/e.log", "b.log", "odd[1].log"]);
        assert_eq!(names(&format!("{root}/{{b,c}}.*")), ["b.log", "c.txt"]);
        assert_eq!(names(&format!("{root}/b.log")), ["b.log"]);
        assert_eq!(names(&format!("{root}/odd[1].log")), ["odd[1].log"], "a file of that very name comes first");
        assert!(names(&format!("{root}/none/*.log")).is_empty() && names(&format!("{root}/none")).is_empty());
    }

    #[test]
    fn what_is_no_pattern_is_told() {
        assert!(Pattern::parse("a/[b").unwrap_err().contains("is no pattern"));
        assert!(Pattern::parse("").is_err());
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("loop", folder.path().join("loop")).unwrap();
        for path in ["loop", "loop/below", "loop/*.log"] {
            let error = Pattern::parse(folder.path().join(path).to_str().unwrap()).unwrap().list().unwrap_err();
            assert!(error.to_string().contains("leads back to itself") && !error.retry_helps(), "{error}");
        }
        assert!(Pattern::parse("/dev/null").unwrap().list().unwrap_err().to_string().contains("no file that can be read again"));
    }
}
