//! Jobs over HTTP, with the paths and field names of Flink's monitoring API. Handlers are thin: they read a [`JobControl`].

mod status;

use crate::host::JobControl;
use crate::telemetry::Metrics;
use std::io;
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// An address that is taken and not served yet.
#[derive(Debug)]
pub(crate) struct StatusListener {
    listener: TcpListener,
    address: SocketAddr,
}

impl StatusListener {
    /// The address, with the port that was found where 0 was asked for.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Takes an address.
///
/// # Errors
/// The address cannot be bound.
pub(crate) async fn listen(address: SocketAddr) -> io::Result<StatusListener> {
    let listener = TcpListener::bind(address).await?;
    Ok(StatusListener { address: listener.local_addr()?, listener })
}

/// Serves the state, the checkpoints and the metrics of one job until the process ends.
pub(crate) fn serve_status(listener: StatusListener, control: JobControl, metrics: Metrics) {
    let StatusListener { listener, address } = listener;
    tracing::info!(%address, "the status is served");
    let app = status::router(control, metrics);
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, app).await {
            tracing::warn!(%error, "the status is not served any more");
        }
    });
}
