//! Which properties are secrets, and how they are kept out of everything that is shown.

use std::fmt;
use std::sync::Arc;

/// Values shorter than this are not hidden in texts: they hide nothing, and would hide parts of other words.
const SHORTEST_HIDDEN: usize = 4;

/// What stands in place of a secret.
const HIDDEN: &str = "[hidden]";

/// Whether the value of a property must never be shown.
pub(super) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let parts = ["password", "secret", "token", "credential", "jaas", "private.key"];
    let exact = ["ssl.key.pem", "ssl_key", "ssl.keystore.key", "sasl.oauthbearer.config", "sasl.oauthbearer.extensions"];
    // Where a token comes from is no secret; what it is would be.
    let is_place = name.ends_with(".location") || name.ends_with(".url") || name.ends_with(".file");
    exact.contains(&name.as_str()) || (!is_place && parts.iter().any(|part| name.contains(part)))
}

/// The secret values of a client, to be taken out of texts that come from elsewhere. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Secrets(Arc<[String]>);

impl Secrets {
    /// The secrets among these properties.
    pub(super) fn of<'a>(properties: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        let secret = properties.into_iter().filter(|(name, value)| is_secret(name) && value.len() >= SHORTEST_HIDDEN);
        let mut values: Vec<String> = secret.map(|(_, value)| value.clone()).collect();
        // A longer one may contain a shorter one.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        Self(values.into())
    }

    /// The text with every secret in it replaced.
    pub(crate) fn hide(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| if text.contains(secret) { text.replace(secret, HIDDEN) } else { text })
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secrets", self.0.len())
    }
}

/// A property's value as it may be shown.
pub(super) fn shown<'v>(name: &str, value: &'v str) -> &'v str {
    if is_secret(name) { HIDDEN } else { value }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_known_by_name() {
        for name in ["sasl.password", "ssl.key.password", "ssl.keystore.password", "ssl.key.pem", "sasl.oauthbearer.client.secret"] {
            assert!(is_secret(name), "{name}");
        }
        for name in ["sasl.oauthbearer.config", "sasl.jaas.config", "SASL.PASSWORD", "my.api.token"] {
            assert!(is_secret(name), "{name}");
        }
        for name in ["sasl.username", "ssl.key.location", "ssl.certificate.pem", "bootstrap.servers", "sasl.oauthbearer.token.endpoint.url"]
        {
            assert!(!is_secret(name), "{name}");
        }
    }

    #[test]
    fn texts_lose_their_secrets() {
        let properties = [("sasl.password".to_owned(), "hunter2".to_owned()), ("ssl.key.password".to_owned(), "hunter2!".to_owned())];
        let secrets = Secrets::of(properties.iter().map(|(name, value)| (name, value)));
        assert_eq!(secrets.hide("hunter2! and hunter2, not hunter"), "[hidden] and [hidden], not hunter");
        assert_eq!(format!("{secrets:?}"), "2 secrets");
    }
}
