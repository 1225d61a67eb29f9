//! Description and configuration.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::plugin::Environment;

/// A route is a byte; 0 is the main output, and the host keeps the last one for itself.
const MOST_SIDE_OUTPUTS: usize = 254;

/// The JSON document that tells the host what the plugin is.
pub(super) fn describe(
    states: &[Value],
    inputs: &'static [&'static str],
    broadcast_inputs: &'static [&'static str],
    side_outputs: &'static [&'static str],
    capabilities: &'static [&'static str],
) -> String {
    json!({
        "sdk": "waterwheel-plugin (Rust)",
        "sdk_version": env!("CARGO_PKG_VERSION"),
        "states": states,
        "inputs": inputs,
        "side_outputs": side_outputs,
        "capabilities": capabilities,
        "broadcast_inputs": broadcast_inputs,
    })
    .to_string()
}

pub(super) fn check_side_outputs(names: &[&str]) -> Result<(), String> {
    if names.len() > MOST_SIDE_OUTPUTS {
        return Err(format!("the plugin declares {} side outputs; {MOST_SIDE_OUTPUTS} is the most", names.len()));
    }
    match names.iter().enumerate().find(|(index, name)| name.is_empty() || names[..*index].contains(name)) {
        None => Ok(()),
        Some((_, name)) => Err(format!("the plugin declares the side output `{name}`: names must not be empty or repeat")),
    }
}

pub(super) fn check_broadcast_inputs(inputs: &[&str], broadcast: &[&str]) -> Result<(), String> {
    match broadcast.iter().find(|name| !inputs.contains(name)) {
        None => Ok(()),
        Some(name) => Err(format!("the plugin declares the broadcast input `{name}`, which is none of its inputs: INPUTS has {inputs:?}")),
    }
}

pub(super) fn environment(text: &str) -> Result<Environment, String> {
    serde_json::from_str(text).map_err(|error| format!("the host's environment document cannot be read: {error}"))
}

/// Reads the configuration. A configuration that is left out, or null, is an empty object to a type that wants one.
pub(super) fn config<C: DeserializeOwned>(text: &str) -> Result<C, String> {
    let absent = matches!(text.trim(), "" | "null");
    let text = if absent { "{}" } else { text };
    let result = read(text);
    match result {
        Err(_) if absent => read("null").or(result),
        _ => result,
    }
}

fn read<C: DeserializeOwned>(text: &str) -> Result<C, String> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        match path.as_str() {
            "." => format!("config: {}", error.inner()),
            _ => format!("config.{path}: {}", error.inner()),
        }
    })?;
    reader.end().map_err(|error| format!("config: {error}"))?;
    Ok(value)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde::Deserialize;

    use super::config;
    use crate::plugin::NoConfig;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Config {
        #[serde(default)]
        limits: Vec<Limit>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Limit {
        #[allow(dead_code, reason = "only read")]
        bytes: u32,
    }

    #[test]
    fn a_fault_is_named_with_its_path() {
        let error = config::<Config>(r#"{"limits": [{"bytes": 1}, {"bytes": "many"}]}"#).unwrap_err();
        assert!(error.starts_with("config.limits[1].bytes: invalid type: string \"many\", expected u32"), "{error}");
        let error = config::<Config>(r#"{"limit": []}"#).unwrap_err();
        assert!(error.starts_with("config.limit: unknown field `limit`, expected `limits`"), "{error}");
    }

    #[test]
    fn an_absent_configuration_is_an_empty_one() {
        assert!(config::<Config>("null").unwrap().limits.is_empty());
        assert!(config::<Config>("").unwrap().limits.is_empty());
        assert_eq!(config::<Option<u32>>("null").unwrap(), None);
        assert_eq!(config::<NoConfig>("null").unwrap(), NoConfig);
        assert_eq!(config::<NoConfig>("{}").unwrap(), NoConfig);
        let error = config::<Limit>("null").unwrap_err();
        assert!(error.contains("missing field `bytes`"), "{error}");
    }

    #[test]
    fn a_configuration_that_nobody_takes_is_refused() {
        let error = config::<NoConfig>(r#"{"x": 1}"#).unwrap_err();
        assert!(error.contains("takes no configuration, and there is `x`"), "{error}");
        let error = config::<Config>("{} {}").unwrap_err();
        assert!(error.contains("trailing characters"), "{error}");
    }
}
