//! Names and numbers of subtasks.

use super::Checks;
use crate::pipeline::spec::JobSpec;
use std::collections::HashMap;

/// The longest name, in bytes: names become parts of paths and of names in other systems, which have limits of their own.
const MAX_NAME_BYTES: usize = 64;

pub(super) fn check(spec: &JobSpec, checks: &mut Checks) {
    if let Err(problem) = well_formed(&spec.name) {
        checks.fault("/name", format!("{:?} {problem}", spec.name));
    }
    let mut seen: HashMap<String, String> = HashMap::new();
    for (path, uid, parallelism) in elements(spec) {
        let uid_path = format!("{path}/uid");
        match well_formed(uid) {
            Err(problem) => checks.fault(&uid_path, format!("{uid:?} {problem}")),
            // Some file systems tell no case apart, and state is stored under the uid.
            Ok(()) => match seen.get(&uid.to_lowercase()) {
                Some(first) => checks.fault(&uid_path, format!("{uid:?} is the uid of {first} as well; every uid stands for one thing")),
                None => drop(seen.insert(uid.to_lowercase(), path.clone())),
            },
        }
        check_parallelism(spec, &path, parallelism, checks);
    }
}

fn check_parallelism(spec: &JobSpec, path: &str, parallelism: Option<u16>, checks: &mut Checks) {
    let (path, value) = match parallelism {
        Some(value) => (format!("{path}/parallelism"), value),
        None => ("/parallelism".to_owned(), spec.parallelism),
    };
    if value > spec.max_parallelism {
        checks.fault(
            path,
            format!(
                "{value} is more than max-parallelism, which is {}: give fewer subtasks or a larger max-parallelism",
                spec.max_parallelism
            ),
        );
    }
}

/// All sources, operators and sinks: path, uid and parallelism.
fn elements(spec: &JobSpec) -> impl Iterator<Item = (String, &str, Option<u16>)> {
    let sources = spec.sources.iter().enumerate().map(|(i, source)| (format!("/sources/{i}"), source.uid.as_str(), source.parallelism));
    let operators =
        spec.operators.iter().enumerate().map(|(i, operator)| (format!("/operators/{i}"), operator.uid.as_str(), operator.parallelism));
    let sinks = spec.sinks.iter().enumerate().map(|(i, sink)| (format!("/sinks/{i}"), sink.uid.as_str(), sink.parallelism));
    sources.chain(operators).chain(sinks)
}

fn well_formed(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("is empty; a name has letters, digits, - and _".to_owned());
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(format!("is longer than {MAX_NAME_BYTES} characters"));
    }
    if !name.starts_with(|first: char| first.is_ascii_alphanumeric()) {
        return Err("does not begin with a letter or a digit".to_owned());
    }
    match name.chars().find(|char| !char.is_ascii_alphanumeric() && !matches!(char, '-' | '_')) {
        Some(char) => Err(format!("has {char:?} in it; a name has letters, digits, - and _")),
        None => Ok(()),
    }
}
