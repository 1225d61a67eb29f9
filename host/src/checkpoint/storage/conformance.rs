//! What every [`CheckpointStorage`] must pass: its guarantees, tried out.
//!
//! Durability through a crash cannot be tried from inside a process; everything else is.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;

use super::{CheckpointStorage, Created, StorageError};

/// Rounds of the race for one name.
const ROUNDS: usize = 25;
/// Racers in each round.
const RACERS: usize = 12;

/// A guarantee that does not hold.
#[derive(Debug, thiserror::Error)]
pub enum Violation {
    /// A call failed.
    #[error(transparent)]
    Failed(#[from] StorageError),
    /// A call gave a wrong answer.
    #[error("{0}")]
    Wrong(String),
}

fn expect(holds: bool, what: impl FnOnce() -> String) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation::Wrong(what())) }
}

/// Runs the whole suite in the folder `folder`, which should be new.
///
/// # Errors
/// The first guarantee that does not hold.
pub async fn check(storage: Arc<dyn CheckpointStorage>, folder: &str) -> Result<(), Violation> {
    nothing_is_nothing(&*storage, folder).await?;
    create_never_overwrites(&*storage, folder).await?;
    writes_replace(&*storage, folder).await?;
    large_objects_come_back_whole(&*storage, folder).await?;
    listings_are_exact(&*storage, folder).await?;
    deleted_is_gone(&*storage, folder).await?;
    one_racer_wins(storage, folder).await
}

async fn nothing_is_nothing(storage: &dyn CheckpointStorage, folder: &str) -> Result<(), Violation> {
    let path = format!("{folder}/absent");
    expect(storage.read(&path).await?.is_none(), || "reading what is not there gives something".to_owned())?;
    storage.delete(&path).await?;
    expect(storage.list(&format!("{folder}/none")).await?.is_empty(), || "an absent folder lists something".to_owned())?;
    expect(storage.folders(&format!("{folder}/none")).await?.is_empty(), || "an absent folder has folders".to_owned())
}

async fn create_never_overwrites(storage: &dyn CheckpointStorage, folder: &str) -> Result<(), Violation> {
    let path = format!("{folder}/create/deep/down/object");
    let first = storage.create(&path, Bytes::from_static(b"first")).await?;
    expect(first == Created::Now, || "the first create did not make the object".to_owned())?;
    expect(storage.read(&path).await?.as_deref() == Some(b"first"), || "a created object is not read at once".to_owned())?;
    let second = storage.create(&path, Bytes::from_static(b"second")).await?;
    expect(second == Created::AlreadyThere, || "a second create was accepted".to_owned())?;
    expect(storage.read(&path).await?.as_deref() == Some(b"first"), || "a second create changed the object".to_owned())?;
    let empty = format!("{folder}/create/empty");
    expect(storage.create(&empty, Bytes::new()).await? == Created::Now, || "an empty object was not made".to_owned())?;
    expect(storage.read(&empty).await?.as_deref() == Some(b""), || "an empty object is not read as empty".to_owned())
}

async fn writes_replace(storage: &dyn CheckpointStorage, folder: &str) -> Result<(), Violation> {
    let path = format!("{folder}/write/object");
    storage.write(&path, vec![Bytes::from_static(b"one"), Bytes::new(), Bytes::from_static(b" two")]).await?;
    expect(storage.read(&path).await?.as_deref() == Some(b"one two"), || "chunks are not written in order".to_owned())?;
    storage.write(&path, vec![Bytes::from_static(b"3")]).await?;
    expect(storage.read(&path).await?.as_deref() == Some(b"3"), || "a write does not replace what was there".to_owned())
}

async fn large_objects_come_back_whole(storage: &dyn CheckpointStorage, folder: &str) -> Result<(), Violation> {
    let path = format!("{folder}/large");
    let chunk: Bytes = (0..=255_u8).cycle().take(1 << 20).collect();
    storage.write(&path, vec![chunk.clone(); 6]).await?;
    let read = storage.read(&path).await?.unwrap_or_default();
    expect(read.len() == 6 << 20 && read.chunks(1 << 20).all(|part| part == chunk), || "6 MiB come back changed".to_owned())
}

async fn listings_are_exact(storage: &dyn CheckpointStorage, folder: &str) -> Result<(), Violation> {
    let base = format!("{folder}/list");
    // `job` and `job.2` share their first letters: neither may show up in the other's listing.
    for path in ["job/b", "job/a/deep", "job/a/c", "job.2/x", "jobs/y"] {
        let created = storage.create(&format!("{base}/{path}"), Bytes::from_static(b"12345")).await?;
        expect(created == Created::Now, || format!("{path} was not made"))?;
    }
    let listed = storage.list(&format!("{base}/job")).await?;
    let paths: Vec<String> = listed.iter().map(|object| object.path.clone()).collect();
    let expected: Vec<String> = ["job/a/c", "job/a/deep", "job/b"].iter().map(|path| format!("{base}/{path}")).collect();
    expect(paths == expected, || format!("listing gives {paths:?} and not {expected:?}"))?;
    expect(listed.iter().all(|object| object.bytes == 5), || "listing gives wrong lengths".to_owned())?;
    let folders = storage.folders(&base).await?;
    expect(folders == ["job", "job.2", "jobs"], || format!("the folders are given as {folders:?}"))
}

async fn deleted_is_gone(storage: &dyn CheckpointStorage, folder: &str) -> Result<(), Violation> {
    let path = format!("{folder}/delete/object");
    for _ in 0..3 {
        let created = storage.create(&path, Bytes::from_static(b"x")).await?;
        expect(created == Created::Now, || "a deleted name cannot be created again".to_owned())?;
        storage.delete(&path).await?;
        expect(storage.read(&path).await?.is_none(), || "a deleted object is still read".to_owned())?;
        let listed = storage.list(&format!("{folder}/delete")).await?;
        expect(listed.is_empty(), || "a deleted object is still listed".to_owned())?;
    }
    Ok(())
}

async fn one_racer_wins(storage: Arc<dyn CheckpointStorage>, folder: &str) -> Result<(), Violation> {
    for round in 0..ROUNDS {
        let path = format!("{folder}/race/{round}/object");
        let race = (0..RACERS).map(|racer| {
            let (storage, path) = (Arc::clone(&storage), path.clone());
            // Real threads: a race on one of them proves little.
            tokio::spawn(async move { (racer, storage.create(&path, content_of(racer)).await) })
        });
        let mut winners = Vec::new();
        for finished in join_all(race).await {
            let (racer, created) = finished.map_err(|error| Violation::Wrong(format!("a racer died: {error}")))?;
            if created? == Created::Now {
                winners.push(racer);
            }
        }
        let [winner] = winners[..] else {
            return Err(Violation::Wrong(format!("round {round} of a race for one name has the winners {winners:?}")));
        };
        let read = storage.read(&path).await?;
        expect(read == Some(content_of(winner)), || format!("round {round}: the object is not what the winner wrote"))?;
    }
    Ok(())
}

/// Long enough that a torn write would show.
fn content_of(racer: usize) -> Bytes {
    Bytes::from(format!("racer {racer};").repeat(2_000))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::super::faults::{Fault, FaultyStorage, Operation, Rule};
    use super::super::{OpenError, StorageOptions, is_ephemeral, open};
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn a_local_directory_conforms() {
        let directory = tempfile::tempdir().unwrap();
        for url in [directory.path().join("plain").display().to_string(), format!("file://{}/url", directory.path().display())] {
            let storage = open(&url, StorageOptions::default()).await.unwrap();
            check(storage, "suite").await.unwrap();
            assert!(!is_ephemeral(&url));
        }
        // Nothing is left of the probe, and no folder of what was deleted.
        let names: Vec<_> = std::fs::read_dir(directory.path().join("plain")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["suite"]);
        assert!(!directory.path().join("plain/suite/delete").exists());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn memory_conforms_and_is_ephemeral() {
        check(open("memory:///", StorageOptions::default()).await.unwrap(), "suite").await.unwrap();
        assert!(is_ephemeral("memory:///"));
    }

    #[tokio::test]
    async fn two_handles_on_one_directory_see_each_other() {
        let directory = tempfile::tempdir().unwrap();
        let url = directory.path().display().to_string();
        let (one, two) = (open(&url, StorageOptions::default()).await.unwrap(), open(&url, StorageOptions::default()).await.unwrap());
        assert_eq!(one.create("job/object", Bytes::from_static(b"one")).await.unwrap(), Created::Now);
        assert_eq!(two.create("job/object", Bytes::from_static(b"two")).await.unwrap(), Created::AlreadyThere);
        assert_eq!(two.read("job/object").await.unwrap().as_deref(), Some(&b"one"[..]));
    }

    #[tokio::test]
    async fn a_deleted_object_takes_what_a_killed_writer_left_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let storage = open(&directory.path().display().to_string(), StorageOptions::default()).await.unwrap();
        assert_eq!(storage.create("job/chk-1/_metadata", Bytes::from_static(b"x")).await.unwrap(), Created::Now);
        std::fs::write(directory.path().join("job/chk-1/_metadata#1"), b"half").unwrap();
        assert_eq!(storage.list("job").await.unwrap().len(), 1);
        storage.delete("job/chk-1/_metadata").await.unwrap();
        assert!(!directory.path().join("job/chk-1").exists());
    }

    #[tokio::test]
    async fn the_suite_finds_a_storage_that_ignores_the_condition() {
        let inner = open("memory:///", StorageOptions::default()).await.unwrap();
        let faulty = Arc::new(FaultyStorage::new(inner));
        faulty.inject(Rule::always(Operation::Create, "create/deep", Fault::Overwrite));
        let violation = check(faulty, "suite").await.unwrap_err();
        assert!(violation.to_string().contains("a second create was accepted"), "{violation}");
    }

    #[tokio::test]
    async fn what_cannot_be_opened_is_refused_with_a_sentence() {
        let refused = |url: &'static str| async move { open(url, StorageOptions::default()).await.unwrap_err() };
        let ftp = refused("ftp://host/folder").await;
        assert!(matches!(ftp, OpenError::UnknownScheme { .. }) && ftp.to_string().contains("use a path"), "{ftp}");
        let file = refused("/proc/version/folder").await;
        assert!(matches!(file, OpenError::Directory { .. }) && file.to_string().contains("create it"), "{file}");
        #[cfg(not(feature = "s3"))]
        {
            let s3 = refused("s3://bucket/folder").await;
            assert!(s3.to_string().contains("--features s3"), "{s3}");
        }
    }
}
