//! Where the log lines and errors of a Kafka client go: into the log of the process, without secrets, and into the errors that people see.

use super::secret::Secrets;
use super::token::{Token, TokenFile};
use rdkafka::client::{ClientContext, OAuthToken};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::TopicPartitionList;
use std::error::Error as StdError;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// librdkafka's numbers of log levels, those of syslog.
const CRITICAL: i32 = 2;
const WARNING: i32 = 4;
const DEBUG: i32 = 7;

/// The context of one client. Clients keep it in an `Arc`; whoever made the client can ask there what the brokers said.
#[derive(Debug)]
pub(crate) struct Context {
    uid: String,
    servers: String,
    secrets: Secrets,
    token: Option<TokenFile>,
    troubles: Mutex<Troubles>,
}

/// What the client last complained about.
#[derive(Debug, Default)]
struct Troubles {
    last: Option<Trouble>,
    refused: Option<Trouble>,
    all_down_since: Option<Instant>,
}

/// An error that the client reported on its own: a connection that failed, a login that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// What kind of error.
    pub(crate) code: RDKafkaErrorCode,
    /// The client's words, without secrets.
    pub(crate) reason: String,
}

impl Context {
    pub(super) fn new(uid: &str, servers: &str, secrets: Secrets, token: Option<TokenFile>) -> Self {
        Self { uid: uid.to_owned(), servers: servers.to_owned(), secrets, token, troubles: Mutex::default() }
    }

    /// The servers as they were written.
    pub(crate) fn servers(&self) -> &str {
        &self.servers
    }

    /// The client's secrets, to be hidden in texts.
    pub(crate) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// The last complaint about a connection.
    pub(crate) fn last_trouble(&self) -> Option<Trouble> {
        self.troubles().last.clone()
    }

    /// A complaint that trying again does not help against: a login or a certificate that was refused.
    pub(crate) fn refusal(&self) -> Option<Trouble> {
        self.troubles().refused.clone()
    }

    /// Since when no broker at all can be reached, if that is so; [`Context::reached`] ends it.
    pub(crate) fn all_down_since(&self) -> Option<Instant> {
        self.troubles().all_down_since
    }

    /// A broker has answered.
    pub(crate) fn reached(&self) {
        *self.troubles() = Troubles::default();
    }

    /// No broker has answered.
    pub(crate) fn unreached(&self) {
        self.troubles().all_down_since.get_or_insert_with(Instant::now);
    }

    /// A log line of the client, at a level of syslog.
    pub(super) fn line(&self, level: i32, facility: &str, text: &str) {
        let (uid, text) = (self.uid.as_str(), self.secrets.hide(text));
        // What the client calls an error it mends itself, or reports as an error as well.
        let level = if facility == "GETPID" && text.ends_with(": retrying") { DEBUG } else { level };
        match level {
            ..=CRITICAL => tracing::error!(target: "waterwheel::kafka", uid, facility, "{text}"),
            level if level <= WARNING => tracing::warn!(target: "waterwheel::kafka", uid, facility, "{text}"),
            _ => tracing::debug!(target: "waterwheel::kafka", uid, facility, "{text}"),
        }
    }

    /// An error that the client reports on its own.
    pub(super) fn trouble(&self, code: RDKafkaErrorCode, reason: &str) {
        // The end of a partition, which some readers ask to be told, is none.
        if code == RDKafkaErrorCode::PartitionEOF {
            return;
        }
        let reason = self.secrets.hide(reason);
        tracing::warn!(target: "waterwheel::kafka", uid = self.uid, code = ?code, "{reason}");
        let mut troubles = self.troubles();
        if code == RDKafkaErrorCode::AllBrokersDown {
            troubles.all_down_since.get_or_insert_with(Instant::now);
            return;
        }
        let trouble = Trouble { code, reason };
        if super::error::is_refusal(&trouble) {
            troubles.refused = Some(trouble.clone());
        }
        troubles.last = Some(trouble);
    }

    /// What came of a commit of group offsets. Only the outside reads them, so that a failure is told and changes nothing.
    pub(crate) fn committed(&self, code: RDKafkaErrorCode) {
        // NoOffset: there was nothing new to commit.
        if !matches!(code, RDKafkaErrorCode::NoError | RDKafkaErrorCode::NoOffset) {
            tracing::warn!(target: "waterwheel::kafka", uid = self.uid, "the group's offsets were not committed: {code}");
        }
    }

    /// The token for OAUTHBEARER.
    ///
    /// # Errors
    /// There is none, as a sentence.
    pub(super) fn token(&self) -> Result<Token, String> {
        let file = self.token.as_ref().ok_or("no file with a token is configured")?;
        file.read().inspect_err(|message| tracing::error!(target: "waterwheel::kafka", uid = self.uid, "{message}"))
    }

    fn troubles(&self) -> std::sync::MutexGuard<'_, Troubles> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientContext for Context {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        self.line(level as i32, facility, text);
    }

    fn stats_raw(&self, _: &[u8]) {}

    fn error(&self, error: KafkaError, reason: &str) {
        self.trouble(error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail), reason);
    }

    fn generate_oauth_token(&self, _: Option<&str>) -> Result<OAuthToken, Box<dyn StdError>> {
        let Token { value, principal, expires } = self.token()?;
        Ok(OAuthToken { token: value, principal_name: principal, lifetime_ms: expires })
    }
}

impl ConsumerContext for Context {
    fn commit_callback(&self, result: KafkaResult<()>, _: &TopicPartitionList) {
        self.committed(result.err().and_then(|error| error.rdkafka_error_code()).unwrap_or(RDKafkaErrorCode::NoError));
    }
}
