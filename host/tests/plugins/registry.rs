//! Plugins by path, by digest, by name and version.

use crate::support::component;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use waterwheel::plugin::{Digest, EngineOptions, FolderRegistry, PluginHost, PluginReference, PluginRegistry};

#[test]
fn references_are_told_apart() {
    let version = |name: &str, version: &str| PluginReference::Version { name: name.into(), version: version.into() };
    let digest = Digest::of(b"x");
    let right = [
        ("plugins/map.wasm", PluginReference::Path("plugins/map.wasm".into())),
        ("map.wasm", PluginReference::Path("map.wasm".into())),
        ("./at@home", PluginReference::Path("./at@home".into())),
        ("json-map@1.0.0-rc.1+b2", version("json-map", "1.0.0-rc.1+b2")),
        (&digest.to_string(), PluginReference::Digest(digest)),
    ];
    for (text, reference) in right {
        assert_eq!(text.parse(), Ok(reference.clone()));
        assert_eq!(reference.to_string(), text);
    }
    for text in ["", "map", "@1", "map@", "map@..", "sha256:12", "sha256:zz"] {
        assert!(text.parse::<PluginReference>().is_err(), "{text}");
    }
}

#[tokio::test]
async fn a_folder_keeps_components_for_good() {
    let folder = tempfile::tempdir().unwrap();
    let registry = FolderRegistry::new(folder.path().join("plugins"));
    let [one, other] = ["passthrough", "faulty"].map(|name| std::fs::read(component(name)).unwrap());
    let digest = registry.add("pass", "1.0.0", &one).await.unwrap();
    assert_eq!(registry.add("pass", "1.0.0", &one).await.unwrap(), digest, "again is once");
    let error = registry.add("pass", "1.0.0", &other).await.unwrap_err().to_string();
    assert!(error.contains(&format!("pass@1.0.0 is {digest} already")), "{error}");
    let error = registry.add("pass", "2", b"garbage").await.unwrap_err().to_string();
    assert!(error.contains("pass@2 is no plugin: the file is not WebAssembly"), "{error}");
    assert!(registry.add("../up", "1", &one).await.is_err());

    assert_eq!(registry.by_version("pass", "1.0.0").await.unwrap().unwrap().bytes, one);
    assert!(registry.by_version("pass", "2").await.unwrap().is_none());
    assert!(registry.by_digest(&Digest::of(b"other")).await.unwrap().is_none());

    let host = PluginHost::new(EngineOptions::default()).unwrap().with_registry(Arc::new(registry.clone()));
    for reference in [PluginReference::Digest(digest), "pass@1.0.0".parse().unwrap()] {
        assert_eq!(host.load(&reference, Path::new("")).await.unwrap().digest(), digest);
    }
    let error = host.load(&"pass@3".parse().unwrap(), Path::new("")).await.unwrap_err().to_string();
    assert!(error.contains("the registry does not have the plugin pass@3"), "{error}");

    let file = folder.path().join("plugins/sha256").join(format!("{}.wasm", digest.hex()));
    std::fs::write(&file, b"something else").unwrap();
    let error = registry.by_digest(&digest).await.unwrap_err().to_string();
    assert!(error.contains("is damaged"), "{error}");
}

#[tokio::test]
async fn what_is_not_there_is_told() {
    let host = PluginHost::new(EngineOptions::default()).unwrap();
    let error = host.load(&PluginReference::Path(PathBuf::from("nothing.wasm")), Path::new("/somewhere")).await.unwrap_err();
    assert_eq!(error.to_string(), "there is no plugin at /somewhere/nothing.wasm");
    let error = host.load(&"pass@1".parse().unwrap(), Path::new("")).await.unwrap_err();
    assert!(error.to_string().contains("this host has none"), "{error}");
    let garbage = tempfile::NamedTempFile::new().unwrap();
    let error = host.load(&PluginReference::Path(garbage.path().into()), Path::new("")).await.unwrap_err().to_string();
    assert!(error.starts_with("plugin ") && error.contains("the file is empty"), "{error}");
}
