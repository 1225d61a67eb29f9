//! The service: the job in code, and the HTTP paths around it.

use crate::order_log::OrderLog;
use crate::table::Table;
use anyhow::{Context, Result, bail};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Html;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value, json};
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use waterwheel::Host;
use waterwheel::host::{JobControl, JobEnd, SubmitOptions};
use waterwheel::pipeline::JobBuilder;
use waterwheel::pipeline::spec::{InputSpec, KeyBy, OperatorSpec, SinkSpec, SourceSpec};

/// What a customer posts.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Order {
    user: String,
    amount: Number,
}

/// What the handlers of the service share.
#[derive(Clone)]
struct Shop {
    log: OrderLog,
    table: Table,
    job: JobControl,
}

/// Runs the service until `until` is over, then stops its job with a last checkpoint. All it remembers is in `folder`: when it is run
/// again there, it goes on from where it stopped or crashed.
///
/// # Errors
/// The folder cannot be used, the plugin is not there, or the job has failed.
pub async fn run(listener: TcpListener, folder: &Path, plugin: &Path, until: impl Future<Output = ()> + Send + 'static) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    let log = OrderLog::load(&folder.join("orders.jsonl"))?;
    let table = Table::load(&folder.join("totals.json"))?;

    // The host knows the source and the sink of this service beside those that come with Waterwheel.
    let host = Host::builder().source(Arc::new(log.clone())).sink(Arc::new(table.clone())).plugin_cache(folder.join("compiled")).build()?;
    let spec = JobBuilder::new("shop")
        .source(SourceSpec::new("orders", "order-log"))
        .operator(
            OperatorSpec::new("totals", plugin.display().to_string())
                .input(InputSpec::from("orders").keyed_by(KeyBy::JsonPointer("/user".into()))),
        )
        .sink(SinkSpec::new("table", "table").input("totals"))
        .checkpoint_every(Duration::from_secs(1), folder.join("checkpoints").display().to_string())
        .build();
    let job = host.check_job(&spec, ".")?;
    let handle = host.submit(&job, SubmitOptions::default()).await?;

    let shop = Shop { log, table, job: handle.control() };
    let control = handle.control();
    let mut ended = std::pin::pin!(handle.wait());
    let server = axum::serve(listener, routes(shop)).with_graceful_shutdown(until).into_future();
    tokio::select! {
        served = server => served?,
        end = &mut ended => bail!("the job has ended: {end:?}"),
    }
    control.stop().await;
    match ended.await {
        JobEnd::Stopped => Ok(()),
        end => bail!("the job could not be stopped: {end:?}"),
    }
}

fn routes(shop: Shop) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/orders", post(order))
        .route("/totals", get(totals))
        .route("/status", get(status))
        .route("/checkpoints", post(checkpoint))
        .with_state(shop)
}

/// Takes an order. It counts, whatever happens, once this has answered.
async fn order(State(shop): State<Shop>, Json(order): Json<Order>) -> Result<StatusCode, (StatusCode, String)> {
    let failed = |error: &dyn std::fmt::Display| (StatusCode::INTERNAL_SERVER_ERROR, format!("the order was not taken: {error}\n"));
    let line = serde_json::to_string(&order).map_err(|error| failed(&error))?;
    let appended = tokio::task::spawn_blocking(move || shop.log.append(&line)).await.map_err(|error| failed(&error))?;
    appended.map_err(|error| failed(&error))?;
    Ok(StatusCode::ACCEPTED)
}

/// The totals of all users, as the plugin emitted them.
async fn totals(State(shop): State<Shop>) -> String {
    shop.table.rows().into_values().map(|row| row + "\n").collect()
}

/// The totals for people.
async fn page(State(shop): State<Shop>) -> Html<String> {
    let escaped = |text: String| text.replace('&', "&amp;").replace('<', "&lt;");
    let rows: String = shop.table.rows().into_values().map(|row| format!("<li><code>{}</code></li>\n", escaped(row))).collect();
    Html(format!("<!doctype html>\n<title>Shop</title>\n<h1>Totals</h1>\n<ul>\n{rows}</ul>\n"))
}

/// The job as it stands.
async fn status(State(shop): State<Shop>) -> Json<Value> {
    let status = shop.job.status();
    let last = status.checkpoints.latest.completed.map(|checkpoint| checkpoint.id);
    Json(json!({ "state": status.state, "restarts": status.restarts, "last-checkpoint": last, "nodes": shop.job.nodes() }))
}

/// Takes a checkpoint now, and answers with its number.
async fn checkpoint(State(shop): State<Shop>) -> Result<String, (StatusCode, String)> {
    let completed = shop.job.checkpoint().await;
    completed.map(|number| format!("{number}\n")).map_err(|reason| (StatusCode::CONFLICT, format!("{reason}\n")))
}
