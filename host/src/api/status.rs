//! The state of a job, read only.

use crate::host::JobControl;
use crate::telemetry::Metrics;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;

/// The routes.
pub(super) fn router(control: JobControl, metrics: Metrics) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(move || async move { ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], metrics.encode()) }))
        .route("/v1/jobs", get(jobs))
        .route("/v1/jobs/{id}", get(job))
        .route("/v1/jobs/{id}/checkpoints", get(checkpoints))
        .route("/v1/jobs/{id}/exceptions", get(exceptions))
        .route("/v1/jobs/{id}/plan", get(plan))
        .fallback(|| async { problem(StatusCode::NOT_FOUND, "there is nothing at this path; /v1/jobs lists the job") })
        .with_state(control)
}

async fn ready(State(control): State<JobControl>) -> Response {
    match control.status().state {
        crate::pipeline::run::JobState::Running => "ready\n".into_response(),
        state => problem(StatusCode::SERVICE_UNAVAILABLE, &format!("the job is {state:?}")),
    }
}

async fn jobs(State(control): State<JobControl>) -> Response {
    let status = control.status();
    Json(json!({ "jobs": [{ "id": id(&control), "name": status.name, "status": status.state, "start-time": status.start_time }] }))
        .into_response()
}

async fn job(State(control): State<JobControl>, path: axum::extract::Path<String>) -> Response {
    if let Some(unknown) = unknown(&control, &path) {
        return unknown;
    }
    let status = control.status();
    Json(json!({
        "id": id(&control),
        "name": status.name,
        "state": status.state,
        "generation": status.generation,
        "start-time": status.start_time,
        "restarts": status.restarts,
        "trouble": status.trouble,
        "vertices": control.nodes(),
    }))
    .into_response()
}

async fn checkpoints(State(control): State<JobControl>, path: axum::extract::Path<String>) -> Response {
    unknown(&control, &path).unwrap_or_else(|| Json(control.status().checkpoints).into_response())
}

async fn exceptions(State(control): State<JobControl>, path: axum::extract::Path<String>) -> Response {
    unknown(&control, &path).unwrap_or_else(|| Json(json!({ "entries": control.status().exceptions })).into_response())
}

async fn plan(State(control): State<JobControl>, path: axum::extract::Path<String>) -> Response {
    unknown(&control, &path).unwrap_or_else(|| {
        let drawn = control.plan().draw(crate::pipeline::plan::Format::Json);
        ([(header::CONTENT_TYPE, "application/json")], drawn).into_response()
    })
}

/// The job is known by its id and by its name.
fn id(control: &JobControl) -> String {
    let status = control.status();
    status.id.unwrap_or(status.name)
}

fn unknown(control: &JobControl, asked: &str) -> Option<Response> {
    let known = asked == id(control) || asked == control.status().name;
    (!known).then(|| problem(StatusCode::NOT_FOUND, &format!("there is no job {asked:?} here; /v1/jobs lists the job")))
}

/// An error as RFC 9457 has it.
fn problem(status: StatusCode, detail: &str) -> Response {
    let body = json!({
        "type": "about:blank",
        "title": status.canonical_reason().unwrap_or_default(),
        "status": status.as_u16(),
        "detail": detail,
    });
    (status, [(header::CONTENT_TYPE, "application/problem+json")], body.to_string()).into_response()
}
