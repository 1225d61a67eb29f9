//! OAUTHBEARER tokens from a file, as a token service or an orchestrator renews it.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// How long a token counts that does not say itself when it ends.
const UNSTATED_LIFETIME: Duration = Duration::from_secs(300);

/// A file that holds a token, read each time that one is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TokenFile(PathBuf);

/// A token, and what librdkafka wants to know of it.
pub(crate) struct Token {
    /// The token itself, a secret.
    pub(super) value: String,
    /// Whom it names.
    pub(super) principal: String,
    /// Until when it counts, milliseconds since the Unix epoch.
    pub(super) expires: i64,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("principal", &self.principal).field("expires", &self.expires).finish_non_exhaustive()
    }
}

impl fmt::Display for TokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the token file {}", self.0.display())
    }
}

/// What is read of a JSON Web Token.
#[derive(Deserialize)]
struct Claims {
    sub: Option<String>,
    /// Seconds since the Unix epoch; some issuers write fractions.
    exp: Option<f64>,
}

impl TokenFile {
    /// The file of a URL, which must be one.
    ///
    /// # Errors
    /// Another kind of URL, as a sentence.
    pub(super) fn from_url(url: &str) -> Result<Self, String> {
        let parsed = url::Url::parse(url)
            .map_err(|error| format!("{url:?} is no URL ({error}): write file:///path of the file that holds the token"))?;
        if parsed.scheme() != "file" {
            let advice =
                "have the token service write its token into a file, and write file:///path; it is read again before the token expires";
            return Err(format!("tokens are not fetched over {}: {advice}", parsed.scheme()));
        }
        parsed.to_file_path().map(Self).map_err(|()| format!("{url:?} names no file of this machine: write file:///path"))
    }

    /// Reads the token.
    ///
    /// # Errors
    /// A file that cannot be read or holds no token, as a sentence without its content.
    pub(super) fn read(&self) -> Result<Token, String> {
        let text = std::fs::read_to_string(&self.0).map_err(|error| format!("{self} cannot be read: {error}"))?;
        let value = text.trim().to_owned();
        let claims = claims(&value).ok_or_else(|| format!("{self} holds no JSON Web Token"))?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        #[allow(clippy::cast_possible_truncation, reason = "saturates; a time that far away never comes")]
        let expires = claims.exp.map(|seconds| (seconds * 1000.0) as i64);
        let unstated = || i64::try_from((now + UNSTATED_LIFETIME).as_millis()).unwrap_or(i64::MAX);
        Ok(Token { value, principal: claims.sub.unwrap_or_default(), expires: expires.unwrap_or_else(unstated) })
    }
}

/// The claims in the middle part of a token. They are not checked: the broker does that.
fn claims(token: &str) -> Option<Claims> {
    let mut parts = token.split('.');
    let (_header, payload) = (parts.next()?, parts.next()?);
    parts.next()?;
    let json = URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).ok()?;
    serde_json::from_slice(&json).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_token_says_whom_it_names_and_when_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let payload = URL_SAFE_NO_PAD.encode(r#"{"sub":"alice","exp":1893456000}"#);
        std::fs::write(&path, format!("e30.{payload}.\n")).unwrap();
        let file = TokenFile::from_url(&format!("file://{}", path.display())).unwrap();
        let token = file.read().unwrap();
        assert_eq!((token.principal.as_str(), token.expires), ("alice", 1_893_456_000_000));
        assert!(!format!("{token:?}").contains(&payload));
        std::fs::write(&path, "hunter2").unwrap();
        let message = file.read().unwrap_err();
        assert!(message.ends_with("holds no JSON Web Token") && !message.contains("hunter2"), "{message}");
    }

    #[test]
    fn only_files_are_read() {
        assert!(TokenFile::from_url("https://login/token").unwrap_err().starts_with("tokens are not fetched over https"));
        assert!(TokenFile::from_url("/path").is_err());
    }
}
