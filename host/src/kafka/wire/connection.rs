//! A connection to one broker: requests and answers with their lengths, over TLS and behind a login where the properties say so.

use super::login;
use crate::kafka::ClientOptions;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// The largest answer that is read: far above any, it stops a stranger's bytes from being taken for a length.
const LARGEST_ANSWER: usize = 64 << 20;

/// What bytes go over.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection that is ready for requests.
pub(super) struct Connection(Box<dyn Stream>);

impl Connection {
    /// Connects to a broker, `host:port`.
    ///
    /// # Errors
    /// It cannot be reached, its certificate is not trusted, or it refuses the login.
    pub(super) async fn open(options: &ClientOptions, address: &str) -> Result<Self, String> {
        let protocol = options.get("security.protocol").unwrap_or("plaintext").to_ascii_lowercase();
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        let mut connection = Self(if protocol.ends_with("ssl") { secured(options, address, stream).await? } else { Box::new(stream) });
        if protocol.starts_with("sasl") {
            login::login(&mut connection, options).await?;
        }
        Ok(connection)
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// The connection breaks, or what comes is no answer.
    pub(super) async fn exchange(&mut self, request: &[u8]) -> Result<Vec<u8>, String> {
        let broken = |error: std::io::Error| format!("the connection broke ({error}): check security.protocol and the login");
        let length = u32::try_from(request.len()).map_err(|error| error.to_string())?;
        self.0.write_all(&length.to_be_bytes()).await.map_err(broken)?;
        self.0.write_all(request).await.map_err(broken)?;
        self.0.flush().await.map_err(broken)?;
        let length = self.0.read_u32().await.map_err(broken)? as usize;
        if length > LARGEST_ANSWER {
            return Err("it does not speak Kafka's protocol: check security.protocol".to_owned());
        }
        let mut answer = vec![0; length];
        self.0.read_exact(&mut answer).await.map_err(broken)?;
        Ok(answer)
    }
}

#[cfg(feature = "kafka-tls")]
async fn secured(options: &ClientOptions, address: &str, stream: TcpStream) -> Result<Box<dyn Stream>, String> {
    super::tls::connect(options, address, stream).await
}

#[cfg(not(feature = "kafka-tls"))]
#[allow(clippy::unused_async, reason = "as with TLS")]
async fn secured(_: &ClientOptions, _: &str, _: TcpStream) -> Result<Box<dyn Stream>, String> {
    Err("this program was built without TLS for Kafka (the feature kafka-tls)".to_owned())
}

/// The header of a request, without tags.
#[allow(clippy::cast_possible_truncation, reason = "the name of the client is short")]
pub(super) fn header(key: i16, version: i16) -> Vec<u8> {
    const CLIENT: &str = "waterwheel";
    let mut header = Vec::new();
    header.extend_from_slice(&key.to_be_bytes());
    header.extend_from_slice(&version.to_be_bytes());
    // The same number for every request: an answer is waited for before the next one.
    header.extend_from_slice(&7_i32.to_be_bytes());
    header.extend_from_slice(&(CLIENT.len() as i16).to_be_bytes());
    header.extend_from_slice(CLIENT.as_bytes());
    header
}
