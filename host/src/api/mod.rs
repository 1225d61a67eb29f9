//! Jobs over HTTP, with the paths and field names of Flink's monitoring API. Handlers are thin: they read a [`JobControl`].

mod status;

use crate::host::JobControl;
use crate::telemetry::Metrics;
use std::io;
use std::net::SocketAddr;

/// Serves the state, the checkpoints and the metrics of one job until the process ends.
///
/// # Errors
/// The address cannot be bound.
pub(crate) async fn serve_status(address: SocketAddr, control: JobControl, metrics: Metrics) -> io::Result<()> {
    let listener = tokio::net::TcpListener::bind(address).await?;
    tracing::info!(address = %listener.local_addr()?, "the status is served");
    let app = status::router(control, metrics);
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, app).await {
            tracing::warn!(%error, "the status is not served any more");
        }
    });
    Ok(())
}
