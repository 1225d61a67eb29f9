//! What is no plugin is refused with every reason at once, and a hint. The components are made from changed copies of the contract.

use crate::support::{HOST, batch, component, context, error_of};
use std::path::Path;
use waterwheel::plugin::{PluginReference, Unfit, World, inspect};
use wit_component::{ComponentEncoder, StringEncoding, dummy_module, embed_component_metadata};
use wit_parser::{ManglingAndAbi, PackageId, Resolve, WorldId};

const CONTRACT: &str = include_str!("../../../wit/plugin.wit");
const HTTP: &str = "package wasi:http@0.2.0; interface outgoing-handler { handle: func(); }";

fn world(resolve: &Resolve, package: PackageId, name: &str) -> WorldId {
    resolve.select_world(&[package], Some(name)).unwrap()
}

fn encode(mut module: Vec<u8>, resolve: &Resolve, world: WorldId) -> Vec<u8> {
    embed_component_metadata(&mut module, resolve, world, StringEncoding::UTF8).unwrap();
    ComponentEncoder::default().validate(true).module(&module).unwrap().encode().unwrap()
}

/// A component of this world of a contract, that traps in every function.
fn dummy(contract: &str, name: &str) -> Vec<u8> {
    let mut resolve = Resolve::default();
    resolve.push_str("http.wit", HTTP).unwrap();
    let package = resolve.push_str("plugin.wit", contract).unwrap();
    let world = world(&resolve, package, name);
    encode(dummy_module(&resolve, world, ManglingAndAbi::Standard32), &resolve, world)
}

/// The contract with some of its text replaced.
fn changed(changes: &[(&str, &str)]) -> String {
    let mut contract = CONTRACT.to_owned();
    for (old, new) in changes {
        assert!(contract.contains(old), "the contract does not say {old:?} any more");
        contract = contract.replace(old, new);
    }
    contract
}

#[track_caller]
fn unfit(bytes: &[u8]) -> Unfit {
    inspect(bytes).unwrap_err()
}

#[test]
fn each_world_is_known() {
    assert_eq!(inspect(&dummy(CONTRACT, "map-plugin")), Ok(World::MapPlugin));
    assert_eq!(inspect(&dummy(CONTRACT, "keyed-plugin")), Ok(World::KeyedPlugin));
    for (name, world) in [("passthrough", World::MapPlugin), ("running-total", World::KeyedPlugin)] {
        assert_eq!(inspect(&std::fs::read(component(name)).unwrap()), Ok(world));
    }
}

#[test]
fn what_is_no_component_is_told() {
    let sentence = |bytes: &[u8]| unfit(bytes).to_string();
    assert!(sentence(b"").starts_with("the file is empty"));
    assert!(sentence(b"\x7fELF").starts_with("the file is not WebAssembly"));
    assert!(sentence(b"\0asm").starts_with("the file is cut short"));
    assert!(sentence(b"  (component)").contains("wasm-tools parse"));
    let core = wat::parse_str("(module (func (export \"run\")))").unwrap();
    let told = sentence(&core);
    assert!(told.contains("core module") && told.contains("wasm-tools component new") && told.contains("wasm32-wasip2"), "{told}");
    let whole = dummy(CONTRACT, "map-plugin");
    assert!(sentence(&whole[..whole.len() - 7]).starts_with("the component cannot be read"));
    let empty = wat::parse_str("(component)").unwrap();
    let told = sentence(&empty);
    assert!(told.contains("neither waterwheel:plugin/mapper@0.1.0") && told.contains("lifecycle@0.1.0 is missing"), "{told}");
    assert!(told.contains("nothing of it belongs to waterwheel:plugin"), "{told}");
}

#[test]
fn everything_that_does_not_fit_is_told_at_once() {
    let contract = changed(&[
        ("timestamps: list<s64>", "timestamps: list<u64>"),
        ("  close: func();", ""),
        ("by: u64);", "by: u64);\n  sleep: func(milliseconds: u64);"),
        ("enum level { debug, info, warn, error }", "enum level { debug, info, warn, error, fatal }"),
        ("world map-plugin {", "world map-plugin {\n  import wasi:http/outgoing-handler@0.2.0;\n  import other;"),
        ("interface mapper {", "interface other { go: func(); }\ninterface mapper {"),
        ("describe: func() -> string;", "describe: func(verbose: bool) -> list<u8>;"),
    ]);
    let told = unfit(&dummy(&contract, "map-plugin"));
    let expected = [
        "import waterwheel:plugin/host@0.1.0: log: parameter level is enum { debug, info, warn, error, fatal }, expected enum { debug, info, warn, error }",
        "import waterwheel:plugin/host@0.1.0: this host does not have the function sleep",
        "import waterwheel:plugin/other@0.1.0: this host does not have it",
        "export waterwheel:plugin/lifecycle@0.1.0: the function close is missing",
        "export waterwheel:plugin/lifecycle@0.1.0: describe: its parameters are (verbose), expected ()",
        "export waterwheel:plugin/lifecycle@0.1.0: describe: result is list<u8>, expected string",
        "export waterwheel:plugin/mapper@0.1.0: process: parameter records.timestamps[] is u64, expected s64",
        "export waterwheel:plugin/mapper@0.1.0: process: result (ok).records.timestamps[] is u64, expected s64",
        "export waterwheel:plugin/mapper@0.1.0: finish: result (ok).records.timestamps[] is u64, expected s64",
    ];
    let mut reasons = told.reasons.clone();
    reasons.sort();
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    assert_eq!(reasons, expected);
    assert_eq!(told.hint, None);
}

#[test]
fn missing_exports_are_named() {
    let contract = changed(&[("  export keyed-processor;\n  export snapshot;", "  export keyed-processor;")]);
    assert_eq!(unfit(&dummy(&contract, "keyed-plugin")).reasons, ["export waterwheel:plugin/snapshot@0.1.0 is missing"]);
    let contract = changed(&[("  export keyed-processor;\n  export snapshot;", "  export keyed-processor;\n  export mapper;")]);
    assert!(unfit(&dummy(&contract, "keyed-plugin")).to_string().contains("it exports both mapper and keyed-processor"));
    let contract = changed(&[("records: batch, context: context)", "records: batch)")]);
    let told = unfit(&dummy(&contract, "map-plugin")).to_string();
    assert!(told.contains("process: its parameters are (records), expected (records, context)"), "{told}");
}

#[test]
fn another_version_of_the_contract_is_hinted_at() {
    let contract = changed(&[("package waterwheel:plugin@0.1.0;", "package waterwheel:plugin@0.2.0;")]);
    let told = unfit(&dummy(&contract, "map-plugin"));
    assert!(told.reasons.iter().any(|reason| reason.contains("neither")), "{told}");
    assert!(told.hint.unwrap().contains("it was built for waterwheel:plugin@0.2.0, and this host serves 0.1.0"));
}

#[tokio::test]
async fn an_import_of_wasi_that_is_not_linked_traps_by_name_when_it_is_called() {
    let contract = format!("{CONTRACT}\nworld asks {{ include map-plugin; import wasi:http/outgoing-handler@0.2.0; }}");
    let mut resolve = Resolve::default();
    resolve.push_str("http.wit", HTTP).unwrap();
    let package = resolve.push_str("plugin.wit", &contract).unwrap();
    let module = r#"(module
        (import "wasi:http/outgoing-handler@0.2.0" "handle" (func $handle))
        (memory (export "memory") 1)
        (global $free (mut i32) (i32.const 1024))
        (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
            (local $at i32)
            (local.set $at (i32.and (i32.add (global.get $free) (i32.const 7)) (i32.const -8)))
            (global.set $free (i32.add (local.get $at) (local.get 3)))
            (local.get $at))
        (data (i32.const 16) "\20\00\00\00\02\00\00\00")
        (data (i32.const 32) "{}")
        (func (export "waterwheel:plugin/lifecycle@0.1.0#describe") (result i32) (i32.const 16))
        (func (export "waterwheel:plugin/lifecycle@0.1.0#open") (param i32 i32 i32 i32) (result i32) (i32.const 48))
        (func (export "waterwheel:plugin/lifecycle@0.1.0#close"))
        (func (export "waterwheel:plugin/mapper@0.1.0#process")
            (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i64 i64) (result i32)
            (call $handle) (unreachable))
        (func (export "waterwheel:plugin/mapper@0.1.0#finish") (param i64 i64) (result i32) (unreachable)))"#;
    let bytes = encode(wat::parse_str(module).unwrap(), &resolve, world(&resolve, package, "asks"));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let plugin = HOST.load(&PluginReference::Path(file.path().into()), Path::new("")).await.unwrap();
    let mut operator = plugin.operator(context()).await.unwrap();
    let told = error_of(&mut *operator, &["a"]).await.to_string();
    assert!(told.contains("wasi:http/outgoing-handler@0.2.0#handle"), "{told}");
    let error = operator.finish(crate::support::TIMES, &mut waterwheel::operator::Outputs::default()).await.unwrap_err();
    assert!(error.to_string().contains("operator op: the plugin failed in finish: the plugin trapped"), "{error}");
    assert_eq!(batch(&["a"]).len(), 1);
}
