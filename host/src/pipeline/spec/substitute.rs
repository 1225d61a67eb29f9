//! `${env:NAME}` and `${file:path}` in texts: what must not stand in a job file is taken from the environment or a file.

use crate::config::{Fault, Faults};
use serde_json::Value;
use std::path::Path;

/// Values shorter than this are not hidden in faults: they hide nothing, and would hide parts of other words.
const SHORTEST_HIDDEN: usize = 3;

/// What was put in place of references; it never shows.
#[derive(Default)]
pub(in crate::pipeline) struct Replaced(Vec<(String, String)>);

impl std::fmt::Debug for Replaced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(_, reference)| reference)).finish()
    }
}

impl Replaced {
    /// Puts the references back in place of their values.
    pub(in crate::pipeline) fn hide_in(&self, mut faults: Faults) -> Faults {
        for fault in &mut faults.0 {
            for (value, reference) in self.0.iter().filter(|(value, _)| value.len() >= SHORTEST_HIDDEN) {
                fault.message = fault.message.replace(value.as_str(), reference);
            }
        }
        faults
    }
}

/// Replaces the references in all texts of a document (not in keys). `$${` stands for `${` itself. Files are relative to `base`; an end of line
/// at their end is left out. What cannot be replaced is a fault at the place of the text.
pub(in crate::pipeline) fn substitute(document: &mut Value, base: &Path, faults: &mut Vec<Fault>) -> Replaced {
    let mut replaced = Replaced::default();
    walk(document, "", &mut |text, path| {
        if let Some(result) = replace(text, base, &mut replaced) {
            match result {
                Ok(new) => *text = new,
                Err(message) => faults.push(Fault::new(path, message)),
            }
        }
    });
    replaced
}

fn walk(value: &mut Value, path: &str, visit: &mut dyn FnMut(&mut String, &str)) {
    match value {
        Value::String(text) => visit(text, path),
        Value::Array(elements) => {
            for (index, element) in elements.iter_mut().enumerate() {
                walk(element, &format!("{path}/{index}"), visit);
            }
        }
        Value::Object(members) => {
            for (key, member) in members {
                walk(member, &format!("{path}/{}", key.replace('~', "~0").replace('/', "~1")), visit);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The text with its references replaced; none if it has none.
fn replace(text: &str, base: &Path, replaced: &mut Replaced) -> Option<Result<String, String>> {
    if !text.contains("${") {
        return None;
    }
    let mut new = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let before = &rest[..start];
        if let Some(before) = before.strip_suffix('$') {
            new.push_str(before);
            new.push_str("${");
            rest = &rest[start + 2..];
            continue;
        }
        new.push_str(before);
        let Some(length) = rest[start..].find('}') else {
            return Some(Err("has ${ without a closing brace; write $${ where ${ itself is meant".to_owned()));
        };
        let reference = &rest[start..=start + length];
        match resolve(&reference[2..length], base) {
            Ok(value) => {
                new.push_str(&value);
                replaced.0.push((value, reference.to_owned()));
            }
            Err(message) => return Some(Err(format!("{reference}: {message}"))),
        }
        rest = &rest[start + length + 1..];
    }
    new.push_str(rest);
    Some(Ok(new))
}

fn resolve(reference: &str, base: &Path) -> Result<String, String> {
    match reference.split_once(':') {
        Some(("env", name)) => std::env::var(name).map_err(|error| format!("the environment variable {name} cannot be read: {error}")),
        Some(("file", path)) => {
            let path = base.join(path);
            let text = std::fs::read_to_string(&path).map_err(|error| format!("the file {} cannot be read: {error}", path.display()))?;
            let text = text.strip_suffix('\n').unwrap_or(&text);
            Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
        }
        _ => Err("expected ${env:NAME} or ${file:path}; write $${ where ${ itself is meant".to_owned()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn references_are_replaced_and_escaped_ones_are_not() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("secret"), "hunter2\n").unwrap();
        let mut document = json!({"a": ["${file:secret}!", "$${file:secret}", 3], "b": "${env:CARGO_MANIFEST_DIR}"});
        let mut faults = Vec::new();
        let replaced = substitute(&mut document, folder.path(), &mut faults);
        assert_eq!(document, json!({"a": ["hunter2!", "${file:secret}", 3], "b": std::env::var("CARGO_MANIFEST_DIR").unwrap()}));
        assert!(faults.is_empty());
        let hidden = replaced.hide_in(Faults(vec![Fault::new("/a/0", "\"hunter2!\" is wrong")]));
        assert_eq!(hidden.to_string(), "/a/0: \"${file:secret}!\" is wrong");
    }

    #[test]
    fn what_cannot_be_replaced_is_a_fault() {
        let mut document = json!({"a": "${env:WATERWHEEL_NOT_SET}", "b": "${name}", "c": "${open"});
        let mut faults = Vec::new();
        substitute(&mut document, Path::new(""), &mut faults);
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(
            faults,
            [
                "/a: ${env:WATERWHEEL_NOT_SET}: the environment variable WATERWHEEL_NOT_SET cannot be read: environment variable not found",
                "/b: ${name}: expected ${env:NAME} or ${file:path}; write $${ where ${ itself is meant",
                "/c: has ${ without a closing brace; write $${ where ${ itself is meant",
            ]
        );
    }
}
