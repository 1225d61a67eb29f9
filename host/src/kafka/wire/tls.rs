//! TLS by the `ssl.*` properties that librdkafka has, with the same library.

use super::connection::Stream;
use crate::kafka::ClientOptions;
use openssl::error::ErrorStack;
use openssl::pkey::PKey;
use openssl::ssl::{SslConnector, SslConnectorBuilder, SslMethod, SslVerifyMode};
use openssl::x509::X509;
use std::fs;
use std::path::Path;
use std::pin::Pin;
use tokio::net::TcpStream;
use tokio_openssl::SslStream;

/// Shakes hands.
///
/// # Errors
/// Files that cannot be read, or a certificate that is not trusted.
pub(super) async fn connect(options: &ClientOptions, address: &str, stream: TcpStream) -> Result<Box<dyn Stream>, String> {
    let connector = connector(options)?;
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
    let checks_name = options.get("ssl.endpoint.identification.algorithm") != Some("none");
    let ssl = connector.configure().map_err(words)?.verify_hostname(checks_name).into_ssl(host).map_err(words)?;
    let mut stream = SslStream::new(ssl, stream).map_err(words)?;
    let failed = |error: openssl::ssl::Error| format!("TLS fails: {error}; check ssl.ca.location and security.protocol");
    Pin::new(&mut stream).connect().await.map_err(failed)?;
    Ok(Box::new(stream))
}

fn connector(options: &ClientOptions) -> Result<SslConnector, String> {
    let mut builder = SslConnector::builder(SslMethod::tls_client()).map_err(words)?;
    trust(&mut builder, options)?;
    identify(&mut builder, options)?;
    if options.get("enable.ssl.certificate.verification") == Some("false") {
        builder.set_verify(SslVerifyMode::NONE);
    }
    Ok(builder.build())
}

/// The authorities that are trusted; the system's where none are given.
fn trust(builder: &mut SslConnectorBuilder, options: &ClientOptions) -> Result<(), String> {
    if let Some(pem) = options.get("ssl.ca.pem") {
        for certificate in X509::stack_from_pem(pem.as_bytes()).map_err(words)? {
            builder.cert_store_mut().add_cert(certificate).map_err(words)?;
        }
    }
    let Some(location) = options.get("ssl.ca.location").filter(|location| *location != "probe") else { return Ok(()) };
    let (file, folder) = if Path::new(location).is_dir() { (None, Some(location)) } else { (Some(location), None) };
    builder
        .load_verify_locations(file.map(Path::new), folder.map(Path::new))
        .map_err(|error| format!("ssl.ca.location {location}: {error}"))
}

/// The certificate of this client, if it has one.
fn identify(builder: &mut SslConnectorBuilder, options: &ClientOptions) -> Result<(), String> {
    let Some(chain) = pem(options, "ssl.certificate")? else { return Ok(()) };
    let mut chain = X509::stack_from_pem(&chain).map_err(words)?.into_iter();
    if let Some(own) = chain.next() {
        builder.set_certificate(&own).map_err(words)?;
    }
    for other in chain {
        builder.add_extra_chain_cert(other).map_err(words)?;
    }
    if let Some(key) = pem(options, "ssl.key")? {
        let password = options.get("ssl.key.password").unwrap_or_default().as_bytes();
        let key = PKey::private_key_from_pem_passphrase(&key, password).map_err(|error| format!("ssl.key.location: {error}"))?;
        builder.set_private_key(&key).map_err(words)?;
    }
    Ok(())
}

/// What stands in a property `NAME.pem`, or in the file of `NAME.location`.
fn pem(options: &ClientOptions, name: &str) -> Result<Option<Vec<u8>>, String> {
    if let Some(pem) = options.get(&format!("{name}.pem")) {
        return Ok(Some(pem.as_bytes().to_vec()));
    }
    let Some(location) = options.get(&format!("{name}.location")) else { return Ok(None) };
    fs::read(location).map(Some).map_err(|error| format!("{name}.location {location} cannot be read: {error}"))
}

#[allow(clippy::needless_pass_by_value, reason = "it stands in map_err")]
fn words(error: ErrorStack) -> String {
    error.to_string()
}
