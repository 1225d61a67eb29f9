//! Runs the shop on an address until Ctrl-C: `embed [ADDRESS [FOLDER]]`.

use anyhow::{Context, Result};
use std::path::Path;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8040".into());
    let folder = arguments.next().unwrap_or_else(|| "target/embed".into());
    let listener = TcpListener::bind(&address).await.with_context(|| format!("{address} cannot be listened on"))?;
    println!("the shop is open at http://{}; Ctrl-C closes it", listener.local_addr()?);
    let plugin = Path::new("target/plugins/running-total.wasm");
    embed::shop::run(listener, Path::new(&folder), plugin, closing()).await?;
    println!("the shop is closed; the same command opens it again where it stood");
    Ok(())
}

/// Returns when the service is asked to end.
async fn closing() {
    if let Err(error) = tokio::signal::ctrl_c().await {
        eprintln!("Ctrl-C cannot be waited for, so the shop closes: {error}");
    }
}
