//! Opens a checkpoint storage from what a person wrote: a URL or a path.

use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use url::Url;
use uuid::Uuid;

use crate::config::relative_file_url;

use super::{CheckpointStorage, Created, ObjectStorage, StorageError, StorageOptions};

/// Why a storage was refused.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The text is neither a URL that is known nor a path.
    #[error("{url} is no checkpoint directory: use a path, file:///…, memory:///{}", also_known())]
    UnknownScheme {
        /// What was written.
        url: String,
    },
    /// A `file://` URL whose path is not absolute.
    #[error("{sentence}")]
    RelativeUrl {
        /// What is wrong and what to write.
        sentence: String,
    },
    /// The storage is of a kind that this program was built without.
    #[error("{url}: this program was built without the feature `{feature}`; build it with --features {feature}")]
    NotBuilt {
        /// What was written.
        url: String,
        /// The feature.
        feature: &'static str,
    },
    /// The directory cannot be used.
    #[error("the checkpoint directory {path} cannot be used: {source}; create it, or give the program the right to")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The storage's own settings are wrong.
    #[error("{url} cannot be opened: {source}")]
    Settings {
        /// What was written.
        url: String,
        /// Why.
        source: object_store::Error,
    },
    /// Create-if-absent does not work there.
    #[error(
        "{url} cannot hold checkpoints: it has no atomic create-if-absent ({problem}), and without it two instances of a job could overwrite each other's checkpoints"
    )]
    NoAtomicCreate {
        /// What was written.
        url: String,
        /// What happened.
        problem: String,
    },
    /// A call failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

fn also_known() -> String {
    let built = [("s3", "s3://…"), ("gcs", "gs://…"), ("azure", "az://…")];
    built.iter().map(|(_, scheme)| format!(", {scheme}")).collect()
}

/// Whether what is written there is gone with the process, so that no exactly-once sink may rely on it.
#[must_use]
pub fn is_ephemeral(url: &str) -> bool {
    url.starts_with("memory:")
}

/// Opens the storage and proves that create-if-absent is atomic there.
///
/// A plain path and `file://` are a local directory, which is made if it is not there; every file and every
/// directory entry is synced before a call answers. `memory://` is a new storage each time, gone with the process.
///
/// # Errors
/// See [`OpenError`].
pub async fn open(url: &str, options: StorageOptions) -> Result<Arc<dyn CheckpointStorage>, OpenError> {
    let storage = connect(url, options)?;
    probe(&storage, url).await?;
    Ok(Arc::new(storage))
}

/// Opens the storage of checkpoints that are there, only to look at them: nothing is proved or written.
///
/// # Errors
/// See [`OpenError`].
pub fn open_to_read(url: &str, options: StorageOptions) -> Result<Arc<dyn CheckpointStorage>, OpenError> {
    Ok(Arc::new(connect(url, options)?))
}

fn connect(url: &str, options: StorageOptions) -> Result<ObjectStorage, OpenError> {
    if let Some(sentence) = relative_file_url(url) {
        return Err(OpenError::RelativeUrl { sentence });
    }
    let Some((scheme, _)) = url.split_once("://") else {
        return local(FsPath::new(url), url, options);
    };
    let unknown = || OpenError::UnknownScheme { url: url.to_owned() };
    let parsed = Url::parse(url).map_err(|_| unknown())?;
    match scheme {
        "file" => local(&parsed.to_file_path().map_err(|()| unknown())?, url, options),
        "memory" => Ok(ObjectStorage::new(Arc::new(InMemory::new()), object_store::path::Path::default(), url, options)),
        "s3" | "s3a" => remote(&parsed, cfg!(feature = "s3"), "s3", options),
        "gs" => remote(&parsed, cfg!(feature = "gcs"), "gcs", options),
        "az" | "abfs" | "abfss" | "azure" | "adl" => remote(&parsed, cfg!(feature = "azure"), "azure", options),
        _ => Err(unknown()),
    }
}

fn local(path: &FsPath, url: &str, options: StorageOptions) -> Result<ObjectStorage, OpenError> {
    let failed = |source| OpenError::Directory { path: path.to_path_buf(), source };
    std::fs::create_dir_all(path).map_err(failed)?;
    let directory = path.canonicalize().map_err(failed)?;
    // The directory itself may be new: its entry has to survive a crash as well.
    if let Some(parent) = directory.parent() {
        std::fs::File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed)?;
    }
    let store = LocalFileSystem::new_with_prefix(&directory).map_err(|source| OpenError::Settings { url: url.to_owned(), source })?;
    let store = store.with_fsync(true).with_automatic_cleanup(true);
    Ok(ObjectStorage::local(Arc::new(store), directory, url.to_owned(), options))
}

/// A storage reached over the network, with its settings from the environment (`AWS_…`, `GOOGLE_…`, `AZURE_…`).
fn remote(url: &Url, built: bool, feature: &'static str, options: StorageOptions) -> Result<ObjectStorage, OpenError> {
    if !built {
        return Err(OpenError::NotBuilt { url: url.to_string(), feature });
    }
    let settings = std::env::vars().map(|(key, value)| (key.to_ascii_lowercase(), value));
    let (store, prefix) =
        object_store::parse_url_opts(url, settings).map_err(|source| OpenError::Settings { url: url.to_string(), source })?;
    Ok(ObjectStorage::new(Arc::from(store), prefix, url.as_str(), options))
}

/// Creates one object twice: the second time must find the first. Some storages ignore the condition.
async fn probe(storage: &ObjectStorage, url: &str) -> Result<(), OpenError> {
    let path = format!("_probe/{}", Uuid::new_v4());
    let refused = |problem: String| OpenError::NoAtomicCreate { url: url.to_owned(), problem };
    let first = storage.create(&path, Bytes::from_static(b"first")).await;
    let second = match first {
        Ok(Created::Now) => storage.create(&path, Bytes::from_static(b"second")).await,
        Ok(Created::AlreadyThere) => return Err(refused("a new name was said to exist".to_owned())),
        Err(error) if error.class == super::StorageErrorClass::Refused => return Err(refused(error.source.to_string())),
        Err(error) => return Err(error.into()),
    };
    let content = storage.read(&path).await?;
    storage.delete(&path).await?;
    match (second, content.as_deref()) {
        (Ok(Created::AlreadyThere), Some(b"first")) => Ok(()),
        (Err(error), _) => Err(error.into()),
        (Ok(_), _) => Err(refused("a second create of the same name was accepted".to_owned())),
    }
}
