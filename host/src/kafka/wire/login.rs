//! SASL as Kafka has it (KIP-152): the mechanism is agreed on, then its messages go back and forth.

use super::Answer;
use super::connection::{Connection, header};
use crate::kafka::ClientOptions;
use rsasl::prelude::{Mechname, SASLClient, SASLConfig, Session, State};

/// Kafka's number of the request `SaslHandshake`.
const HANDSHAKE: i16 = 17;
/// Kafka's number of the request `SaslAuthenticate`.
const AUTHENTICATE: i16 = 36;
/// What separates the fields of an OAUTHBEARER message (RFC 7628).
const SEPARATOR: char = '\u{1}';

/// Logs in by the mechanism of the properties.
///
/// # Errors
/// The broker refuses, or a mechanism that is not known.
pub(super) async fn login(connection: &mut Connection, options: &ClientOptions) -> Result<(), String> {
    let mechanism = options.get("sasl.mechanism").or(options.get("sasl.mechanisms")).unwrap_or_default().to_ascii_uppercase();
    agree(connection, &mechanism).await?;
    if mechanism == "OAUTHBEARER" {
        let token = options.context().token()?;
        let message = format!("n,,{SEPARATOR}auth=Bearer {}{SEPARATOR}{SEPARATOR}", token.value);
        return authenticate(connection, message.as_bytes()).await.map(|_| ());
    }
    let (user, password) = (options.get("sasl.username").unwrap_or_default(), options.get("sasl.password").unwrap_or_default());
    let config = SASLConfig::with_credentials(None, user.to_owned(), password.to_owned()).map_err(|error| error.to_string())?;
    let name = Mechname::parse(mechanism.as_bytes()).map_err(|error| error.to_string())?;
    let unknown = |error| format!("the mechanism {mechanism} is not known to this command: {error}");
    let session = SASLClient::new(config).start_suggested(&[name]).map_err(unknown)?;
    converse(connection, session).await
}

async fn agree(connection: &mut Connection, mechanism: &str) -> Result<(), String> {
    let mut request = header(HANDSHAKE, 1);
    let length = i16::try_from(mechanism.len()).map_err(|error| error.to_string())?;
    request.extend_from_slice(&length.to_be_bytes());
    request.extend_from_slice(mechanism.as_bytes());
    let answer = connection.exchange(&request).await?;
    let mut answer = Answer(&answer);
    answer.i32()?;
    match answer.i16()? {
        0 => Ok(()),
        33 => Err(format!("it does not allow the mechanism {mechanism} (sasl.mechanism)")),
        code => Err(format!("it answers to the login with error {code}")),
    }
}

async fn converse(connection: &mut Connection, mut session: Session) -> Result<(), String> {
    let mut heard: Option<Vec<u8>> = None;
    loop {
        let mut message = Vec::new();
        let state = session.step(heard.as_deref(), &mut message).map_err(|error| format!("the login failed: {error}"))?;
        if state.has_sent_message() {
            heard = Some(authenticate(connection, &message).await?);
        }
        if let State::Finished(_) = state {
            return Ok(());
        }
    }
}

/// Sends a message of the mechanism, and gives what the broker says to it.
async fn authenticate(connection: &mut Connection, message: &[u8]) -> Result<Vec<u8>, String> {
    let mut request = header(AUTHENTICATE, 0);
    let length = i32::try_from(message.len()).map_err(|error| error.to_string())?;
    request.extend_from_slice(&length.to_be_bytes());
    request.extend_from_slice(message);
    let answer = connection.exchange(&request).await?;
    let mut answer = Answer(&answer);
    answer.i32()?;
    let code = answer.i16()?;
    let length = usize::try_from(answer.i16()?).unwrap_or(0);
    let reason = String::from_utf8_lossy(answer.take(length)?).into_owned();
    if code != 0 {
        return Err(format!("it refuses the login (error {code}): {reason}; check sasl.username and sasl.password"));
    }
    let length = usize::try_from(answer.i32()?).unwrap_or(0);
    answer.take(length).map(<[u8]>::to_vec)
}
