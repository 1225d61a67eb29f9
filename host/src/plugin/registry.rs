//! Where components come from: a path, or a registry that knows them by digest and by name and version.

use super::Digest;
use crate::Error;
use async_trait::async_trait;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// How a job names a plugin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PluginReference {
    /// A file; a relative path starts at the folder of the job file.
    Path(PathBuf),
    /// The digest of a component.
    Digest(Digest),
    /// A name and a version, as they were put into the registry.
    Version {
        /// The name.
        name: String,
        /// The version.
        version: String,
    },
}

impl FromStr for PluginReference {
    type Err = String;

    /// `sha256:…` is a digest; what ends in `.wasm` or has a `/` is a path; `name@version` is that.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.starts_with("sha256:") {
            return text.parse().map(Self::Digest);
        }
        if text.contains(['/', std::path::MAIN_SEPARATOR]) || text.ends_with(".wasm") {
            return Ok(Self::Path(text.into()));
        }
        match text.split_once('@') {
            Some((name, version)) if is_name(name) && is_name(version) => {
                Ok(Self::Version { name: name.to_owned(), version: version.to_owned() })
            }
            _ => Err(format!(
                "{text:?} does not name a plugin: write a path to a .wasm file, `name@version`, or `sha256:` and the digest of a component"
            )),
        }
    }
}

impl fmt::Display for PluginReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Digest(digest) => digest.fmt(f),
            Self::Version { name, version } => write!(f, "{name}@{version}"),
        }
    }
}

/// Names and versions are file names too: letters, digits, `-`, `_`, `.` and `+`, and not a dot first.
fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
    !text.is_empty() && text.len() <= 128 && !text.starts_with('.') && text.chars().all(allowed)
}

/// The bytes of a component and what they are known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// The digest of the bytes.
    pub digest: Digest,
    /// The component.
    pub bytes: Vec<u8>,
}

/// Keeps components.
///
/// 1. Immutable by digest: a digest always means the same bytes, and they are checked when they are read.
/// 2. A name and a version, once given to a digest, never mean another one.
/// 3. What does not fit a world is refused before it comes in, with every reason at once: see [`inspect`](super::inspect()).
#[async_trait]
pub trait PluginRegistry: Send + Sync + fmt::Debug {
    /// The component of a digest, none when it is not there.
    async fn by_digest(&self, digest: &Digest) -> Result<Option<Artifact>, Error>;

    /// The component of a name and a version, none when it is not there.
    async fn by_version(&self, name: &str, version: &str) -> Result<Option<Artifact>, Error>;
}

/// A registry in a folder: `sha256/<digest>.wasm` are the components, `<name>/<version>` are files that hold a digest.
#[derive(Clone, Debug)]
pub struct FolderRegistry {
    folder: PathBuf,
}

impl FolderRegistry {
    /// The registry in this folder, which need not exist yet.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Puts a component in under a name and a version. Doing it again is doing it once.
    ///
    /// # Errors
    /// It is no plugin, the name or version cannot be one, or they belong to another component.
    pub async fn add(&self, name: &str, version: &str, bytes: &[u8]) -> Result<Digest, Error> {
        if !is_name(name) || !is_name(version) || name == "sha256" {
            return Err(Error::user(format!("{name}@{version} cannot be a name and a version of a plugin: letters, digits and -_.+ only")));
        }
        super::inspect(bytes).map_err(|unfit| Error::user(format!("{name}@{version} is no plugin: {unfit}")))?;
        let digest = Digest::of(bytes);
        create_file(&self.component_path(&digest), bytes).await?;
        let path = self.folder.join(name).join(version);
        create_file(&path, digest.to_string().as_bytes()).await?;
        match self.digest_at(&path).await? {
            Some(kept) if kept == digest => Ok(digest),
            kept => {
                let kept = kept.map_or_else(|| "nothing".into(), |kept| kept.to_string());
                Err(Error::user(format!("{name}@{version} is {kept} already; give the new component a new version")))
            }
        }
    }

    fn component_path(&self, digest: &Digest) -> PathBuf {
        self.folder.join("sha256").join(format!("{}.wasm", digest.hex()))
    }

    async fn digest_at(&self, path: &Path) -> Result<Option<Digest>, Error> {
        let Some(text) = read_if_there(path).await? else { return Ok(None) };
        let digest = String::from_utf8_lossy(&text).trim().parse();
        digest.map(Some).map_err(|sentence: String| Error::external(format!("{} is damaged: {sentence}", path.display())).with_retry(false))
    }
}

#[async_trait]
impl PluginRegistry for FolderRegistry {
    async fn by_digest(&self, digest: &Digest) -> Result<Option<Artifact>, Error> {
        let path = self.component_path(digest);
        let Some(bytes) = read_if_there(&path).await? else { return Ok(None) };
        let found = Digest::of(&bytes);
        if found != *digest {
            let message = format!("{} is damaged: its bytes are {found}; put the component in again", path.display());
            return Err(Error::external(message).with_retry(false));
        }
        Ok(Some(Artifact { digest: found, bytes }))
    }

    async fn by_version(&self, name: &str, version: &str) -> Result<Option<Artifact>, Error> {
        match self.digest_at(&self.folder.join(name).join(version)).await? {
            Some(digest) => self.by_digest(&digest).await,
            None => Ok(None),
        }
    }
}

/// The component that a reference names.
pub(super) async fn resolve(reference: &PluginReference, base: &Path, registry: Option<&dyn PluginRegistry>) -> Result<Artifact, Error> {
    let found = match (reference, registry) {
        (PluginReference::Path(path), _) => {
            let path = base.join(path);
            let bytes = read_if_there(&path).await?;
            let missing = || Error::user(format!("there is no plugin at {}", path.display()));
            let bytes = bytes.ok_or_else(missing)?;
            return Ok(Artifact { digest: Digest::of(&bytes), bytes });
        }
        (_, None) => return Err(Error::user(format!("{reference} is looked up in a registry, and this host has none: name a file"))),
        (PluginReference::Digest(digest), Some(registry)) => registry.by_digest(digest).await?,
        (PluginReference::Version { name, version }, Some(registry)) => registry.by_version(name, version).await?,
    };
    found.ok_or_else(|| Error::user(format!("the registry does not have the plugin {reference}")))
}

async fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    match tokio::fs::read(path).await {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::external(format!("{} cannot be read", path.display())).caused_by(error)),
    }
}

/// Makes a file with these bytes, all or nothing, unless there is one.
async fn create_file(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let place = |error: io::Error| Error::external(format!("{} cannot be written", path.display())).caused_by(error);
    let folder = path.parent().unwrap_or(Path::new("."));
    tokio::fs::create_dir_all(folder).await.map_err(place)?;
    let temporary = folder.join(format!(".{}.tmp", uuid::Uuid::new_v4()));
    tokio::fs::write(&temporary, bytes).await.map_err(place)?;
    // A hard link is made only if the name is free, unlike a rename.
    let linked = tokio::fs::hard_link(&temporary, path).await;
    tokio::fs::remove_file(&temporary).await.map_err(place)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(place(error)),
        _ => Ok(()),
    }
}
