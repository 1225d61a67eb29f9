//! How a job file names a cluster and the properties of a client, checked and ready to make clients from.

use super::properties::{fault_of_all, faults};
use super::secret::{Secrets, is_secret, shown};
use super::token::TokenFile;
use super::{Context, ffi};
use crate::Error;
use crate::config::Fault;
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// The property that [`Servers`] stand for.
const SERVERS: &str = "bootstrap.servers";

/// Where Java's client is told to find its token; here a file only.
const TOKEN_URL: &str = "sasl.oauthbearer.token.endpoint.url";

/// What a client is for: it decides which properties the host owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A source of a job.
    Source,
    /// A sink of a job.
    Sink,
    /// A command for people.
    Tool,
}

/// `host:port` of some brokers, in a list or separated by commas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Servers {
    /// Separated by commas.
    Text(String),
    /// One each.
    List(Vec<String>),
}

impl Servers {
    fn text(&self) -> String {
        match self {
            Self::Text(text) => text.trim().to_owned(),
            Self::List(list) => list.join(","),
        }
    }
}

/// Properties of the client by name, handed to it as they are; values may be texts, numbers or booleans.
#[derive(Clone, Default, PartialEq, Eq, Serialize)]
pub struct Properties(pub(crate) BTreeMap<String, String>);

impl Properties {
    /// Takes a property out: one that is meant for the host and not for the client.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }
}

impl fmt::Debug for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().map(|(name, value)| (name, shown(name, value)))).finish()
    }
}

impl<'de> Deserialize<'de> for Properties {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let values = BTreeMap::<String, serde_json::Value>::deserialize(deserializer)?;
        let text = |(name, value): (String, serde_json::Value)| match value {
            serde_json::Value::String(text) => Ok((name, text)),
            value @ (serde_json::Value::Number(_) | serde_json::Value::Bool(_)) => Ok((name, value.to_string())),
            // The value itself may be a secret that stands in the wrong place.
            _ => Err(de::Error::custom(format!("the property {name} needs a text, a number, true or false"))),
        };
        values.into_iter().map(text).collect::<Result<_, _>>().map(Self)
    }
}

impl JsonSchema for Properties {
    fn schema_name() -> Cow<'static, str> {
        "KafkaProperties".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Properties of the Kafka client (librdkafka) by name, handed to it as they are.",
            "type": "object",
            "additionalProperties": {"type": ["string", "number", "boolean"]},
        })
    }
}

/// The checked properties of a client. Its `Debug` shows no secrets.
#[derive(Clone)]
pub(crate) struct ClientOptions {
    uid: String,
    properties: BTreeMap<String, String>,
    token: Option<TokenFile>,
    secrets: Secrets,
}

impl fmt::Debug for ClientOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let properties: BTreeMap<_, _> = self.properties.iter().map(|(name, value)| (name, shown(name, value))).collect();
        f.debug_struct("ClientOptions").field("uid", &self.uid).field("properties", &properties).finish_non_exhaustive()
    }
}

impl ClientOptions {
    /// Checks servers and properties as they stand in a job file. Nobody is asked: a broker need not be there.
    ///
    /// # Errors
    /// Every fault, with paths that start at the options: `/bootstrap-servers`, `/properties/…`.
    pub(crate) fn check(uid: &str, role: Role, servers: Option<&Servers>, properties: &Properties) -> Result<Self, Vec<Fault>> {
        let mut properties = properties.0.clone();
        let mut found = Vec::new();
        let token = match properties.get(TOKEN_URL).map(|url| TokenFile::from_url(url)) {
            Some(Ok(token)) => {
                properties.remove(TOKEN_URL);
                Some(token)
            }
            Some(Err(message)) => {
                properties.remove(TOKEN_URL);
                found.push(Fault::new(format!("/properties/{TOKEN_URL}"), message));
                None
            }
            None => None,
        };
        found.extend(server_faults(servers, properties.get(SERVERS).or(properties.get("metadata.broker.list"))));
        found.extend(faults(role, &properties));
        if let Some(servers) = servers {
            properties.insert(SERVERS.to_owned(), servers.text());
        }
        if let Some(message) = token_fault(&properties, token.is_some()) {
            found.push(Fault::new("/properties", message));
        }
        let secrets = Secrets::of(&properties);
        let options = Self { uid: uid.to_owned(), properties, token, secrets };
        if found.is_empty() {
            found.extend(fault_of_all(&options.config(), options.context()));
        }
        if found.is_empty() { Ok(options) } else { Err(found) }
    }

    /// The uid of the source or sink that the client works for.
    pub(crate) fn uid(&self) -> &str {
        &self.uid
    }

    /// The servers as they were written.
    pub(crate) fn servers(&self) -> &str {
        self.get(SERVERS).or(self.get("metadata.broker.list")).unwrap_or_default()
    }

    /// The properties but for the servers, to compare them; secrets as digests.
    pub(crate) fn comparable(&self) -> BTreeMap<String, String> {
        let others = self.properties.iter().filter(|(name, _)| !matches!(name.as_str(), SERVERS | "metadata.broker.list"));
        let digest = |value: &str| Sha256::digest(value.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        others.map(|(name, value)| (name.clone(), if is_secret(name) { digest(value) } else { value.clone() })).collect()
    }

    /// The value of a property, if it was given or set.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.properties.get(name).map(String::as_str)
    }

    /// Sets a property that the host decides, in place of what was given.
    pub(crate) fn set(&mut self, name: &str, value: impl Into<String>) -> &mut Self {
        self.properties.insert(name.to_owned(), value.into());
        self
    }

    /// Sets a property where it was not given.
    pub(crate) fn set_default(&mut self, name: &str, value: impl Into<String>) -> &mut Self {
        self.properties.entry(name.to_owned()).or_insert_with(|| value.into());
        self
    }

    /// Takes a property out: one that is meant for the host and not for the client.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        self.properties.remove(name)
    }

    /// The configuration to make a client from, together with [`ClientOptions::context`]. It may hold secrets: never show it.
    pub(crate) fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("client.id", format!("waterwheel-{}", self.uid));
        config.extend(self.properties.clone());
        let is_debugging = self.get("debug").is_some_and(|contexts| !contexts.is_empty());
        config.set_log_level(if is_debugging { RDKafkaLogLevel::Debug } else { RDKafkaLogLevel::Info });
        config
    }

    /// What is not to be seen.
    pub(crate) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// Where the log lines and errors of a client go. Each client has its own.
    pub(crate) fn context(&self) -> Context {
        Context::new(&self.uid, self.servers(), self.secrets.clone(), self.token.clone())
    }

    /// Gives a client its first token, for those whose events nobody serves. Nothing to do without OAUTHBEARER.
    ///
    /// # Errors
    /// A token file that cannot be read.
    pub(crate) fn set_token<C: rdkafka::ClientContext>(&self, client: &rdkafka::client::Client<C>) -> Result<(), Error> {
        let Some(file) = &self.token else { return Ok(()) };
        let token = file.read().map_err(Error::external)?;
        ffi::set_oauth_token(client, &token).map_err(|reason| Error::user(format!("{file} holds no usable token: {reason}")))
    }
}

fn server_faults(servers: Option<&Servers>, property: Option<&String>) -> Vec<Fault> {
    match (servers, property) {
        (Some(_), Some(_)) => vec![Fault::new("/bootstrap-servers", "is given twice, here and in properties; keep one of them")],
        (None, None) => vec![Fault::new("/bootstrap-servers", "is missing (host:port of one or more brokers)")],
        (None, Some(text)) => address_faults("/properties/bootstrap.servers", text),
        (Some(servers), None) => address_faults("/bootstrap-servers", &servers.text()),
    }
}

fn address_faults(path: &str, servers: &str) -> Vec<Fault> {
    let wrong = |address: &str| match address.rsplit_once("://").map_or(address, |(_, rest)| rest).rsplit_once(':') {
        _ if address.is_empty() => Some("an address is empty: write host:port".to_owned()),
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0) => None,
        _ => Some(format!("{address:?} is no address of a broker: write host:port, such as localhost:9092")),
    };
    servers.split(',').filter_map(|address| wrong(address.trim())).map(|message| Fault::new(path, message)).collect()
}

/// What is wrong between the mechanism OAUTHBEARER and its token.
fn token_fault(properties: &BTreeMap<String, String>, has_token: bool) -> Option<String> {
    let mechanism = properties.get("sasl.mechanism").or(properties.get("sasl.mechanisms")).map(String::as_str);
    let is_bearer = mechanism.is_some_and(|mechanism| mechanism.eq_ignore_ascii_case("OAUTHBEARER"));
    match (is_bearer, has_token) {
        (true, false) => Some(format!(
            "sasl.mechanism OAUTHBEARER needs {TOKEN_URL}: file:///path of the file that holds the token; it is read again before it expires"
        )),
        (false, true) => Some(format!("{TOKEN_URL} has an effect only with sasl.mechanism: OAUTHBEARER")),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(servers: Option<&str>, properties: serde_json::Value) -> Result<ClientOptions, Vec<String>> {
        let servers = servers.map(|text| Servers::Text(text.to_owned()));
        let properties: Properties = serde_json::from_value(properties).unwrap();
        let checked = ClientOptions::check("in", Role::Source, servers.as_ref(), &properties);
        checked.map_err(|faults| faults.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn servers_stand_in_one_of_two_places() {
        assert_eq!(check(Some("a:1, b:2"), json!({})).unwrap().servers(), "a:1, b:2");
        assert_eq!(check(None, json!({"bootstrap.servers": "a:1"})).unwrap().servers(), "a:1");
        assert_eq!(check(None, json!({})).unwrap_err(), ["/bootstrap-servers: is missing (host:port of one or more brokers)"]);
        assert!(check(Some("a:1"), json!({"bootstrap.servers": "a:1"})).unwrap_err()[0].contains("given twice"));
        assert!(check(Some("localhost"), json!({})).unwrap_err()[0].contains("\"localhost\" is no address"));
        assert!(check(Some("a:1,,b:x"), json!({})).unwrap_err().len() == 2);
    }

    #[test]
    fn every_fault_is_found_at_once() {
        let faults = check(None, json!({"enable.auto.commit": true, "linger.mss": 5, "fetch.min.bytes": "x"})).unwrap_err();
        assert_eq!(faults.len(), 4, "{faults:?}");
    }

    #[test]
    fn secrets_are_not_shown() {
        let properties =
            json!({"sasl.password": "hunter2", "sasl.username": "alice", "sasl.mechanism": "PLAIN", "security.protocol": "sasl_plaintext"});
        let written: Properties = serde_json::from_value(properties.clone()).unwrap();
        let options = check(Some("a:1"), properties).unwrap();
        for shown in [format!("{written:?}"), format!("{options:?}"), format!("{:?}", options.context())] {
            assert!(!shown.contains("hunter2"), "{shown}");
        }
        assert!(format!("{written:?}").contains("alice"));
        let error = serde_json::from_value::<Properties>(json!({"sasl.password": ["hunter2"]})).unwrap_err().to_string();
        assert!(error.contains("sasl.password") && !error.contains("hunter2"), "{error}");
    }

    #[test]
    fn properties_that_do_not_go_together_are_refused() {
        let faults = check(Some("a:1"), json!({"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"})).unwrap_err();
        assert!(faults[0].starts_with("/properties: the Kafka client cannot be set up with them: "), "{faults:?}");
        let faults = check(Some("a:1"), json!({"security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER"})).unwrap_err();
        assert!(faults[0].contains("file:///path"), "{faults:?}");
    }
}
