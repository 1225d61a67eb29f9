//! Compiled components on disk: a second start does not compile, and what is damaged is made anew.

use crate::support::{batch, component, context, drained};
use std::path::Path;
use waterwheel::operator::Outputs;
use waterwheel::plugin::{CompileCounts, CompileOutcome, EngineOptions, PluginHost, PluginReference};

async fn start(folder: &Path) -> (CompileOutcome, CompileCounts, std::path::PathBuf) {
    let host = PluginHost::new(EngineOptions::default().cache_folder(folder)).unwrap();
    let plugin = host.load(&PluginReference::Path(component("passthrough")), Path::new("")).await.unwrap();
    let again = host.load(&PluginReference::Path(component("passthrough")), Path::new("")).await.unwrap();
    assert_eq!(again.digest(), plugin.digest());
    let mut operator = plugin.operator(context()).await.unwrap();
    let mut outputs = Outputs::default();
    operator.process(0, batch(&["a"]), crate::support::TIMES, &mut outputs).await.unwrap();
    assert_eq!(drained(&mut outputs, 0), ["a"]);
    (plugin.outcome(), host.compile_counts(), host.cache_file(&plugin.digest()).unwrap())
}

#[tokio::test]
async fn a_second_start_does_not_compile() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("not/yet/there");
    let (outcome, counts, file) = start(&inner).await;
    assert_eq!((outcome, counts), (CompileOutcome::Compiled, CompileCounts { compiled: 1, ..CompileCounts::default() }));
    assert!(file.exists());
    let (outcome, counts, _) = start(&inner).await;
    assert_eq!((outcome, counts), (CompileOutcome::FromCache, CompileCounts { from_cache: 1, ..CompileCounts::default() }));
    assert_eq!(std::fs::read_dir(&inner).unwrap().count(), 1, "no temporary files are left");
}

#[tokio::test]
async fn a_damaged_file_is_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let (_, _, file) = start(folder.path()).await;
    let whole = std::fs::read(&file).unwrap();
    let flipped = {
        let mut bytes = whole.clone();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        bytes
    };
    let damaged =
        [flipped, whole[..whole.len() - 1].to_vec(), whole[..10].to_vec(), Vec::new(), b"\x7fELF and nothing more of it".to_vec()];
    for bytes in damaged {
        std::fs::write(&file, bytes).unwrap();
        let (outcome, counts, _) = start(folder.path()).await;
        assert_eq!(outcome, CompileOutcome::Compiled);
        assert_eq!(counts, CompileCounts { compiled: 1, from_cache: 0, unusable: 1 });
        assert_eq!(start(folder.path()).await.0, CompileOutcome::FromCache, "it was made anew");
    }
}
