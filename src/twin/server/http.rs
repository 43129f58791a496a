//! The HTTP face of the simulated engine: vLLM's endpoints and its streams.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use axum::routing::{get, post};
use serde_json::{Value, json};

use super::engine::{Engine, Ticket, Token};
use super::info::{self, Config};
use super::request::{self, Asked, Kind, Refusal, Rules};
use super::tokenize;
use super::wire::{self, Usage, Wire};
use crate::clock;

/// What every handler sees.
#[derive(Debug)]
pub(super) struct App {
    pub(super) config: Config,
    pub(super) rules: Rules,
    pub(super) engine: Engine,
    /// Whether `/health` answers 200.
    pub(super) healthy: AtomicBool,
    pub(super) requests: AtomicU64,
}

type Shared = State<Arc<App>>;

/// All endpoints; some are there in developer mode alone, as with `VLLM_SERVER_DEV_MODE=1`.
pub(super) fn router(app: Arc<App>, dev_mode: bool) -> Router {
    let router = if dev_mode {
        Router::new().route("/server_info", get(server_info)).route("/reset_prefix_cache", post(reset_prefix_cache))
    } else {
        Router::new()
    };
    router
        .route("/health", get(health))
        .route("/ping", get(health).post(health))
        .route("/version", get(async || reply(200, json!({"version": "0.32.0+sim"}))))
        .route("/v1/models", get(async |State(app): Shared| reply(200, info::models(&app.config))))
        .route("/metrics", get(metrics))
        .route("/tokenize", post(tokenize))
        .route("/v1/completions", post(completions))
        .route("/v1/chat/completions", post(chat_completions))
        .fallback(async || reply(404, json!({"detail": "Not Found"})))
        .method_not_allowed_fallback(async || reply(405, json!({"detail": "Method Not Allowed"})))
        .with_state(app)
}

async fn health(State(app): Shared) -> Response {
    respond(if app.healthy.load(Ordering::Relaxed) { 200 } else { 503 }, None, Body::empty())
}

async fn metrics(State(app): Shared) -> Response {
    let page = info::metrics(&app.config, &app.engine.observe().await);
    respond(200, Some("text/plain; version=1.0.0; charset=utf-8"), Body::from(page))
}

async fn server_info(State(app): Shared, RawQuery(query): RawQuery) -> Response {
    let as_json = query.is_some_and(|q| q.split('&').any(|pair| pair == "config_format=json"));
    reply(200, if as_json { info::server_info(&app.config) } else { info::server_info_text(&app.config) })
}

async fn reset_prefix_cache(State(app): Shared) -> Response {
    let success = app.engine.reset_prefix_cache().await;
    reply(200, json!({"success": success}))
}

async fn tokenize(State(app): Shared, body: Bytes) -> Response {
    match tokenize::answer(&body, &app.rules) {
        Ok(answer) => reply(200, answer),
        Err(refusal) => refuse(&refusal),
    }
}

async fn completions(State(app): Shared, headers: HeaderMap, body: Bytes) -> Response {
    answer(&app, Kind::Completion, &headers, &body).await
}

async fn chat_completions(State(app): Shared, headers: HeaderMap, body: Bytes) -> Response {
    answer(&app, Kind::Chat, &headers, &body).await
}

async fn answer(app: &App, kind: Kind, headers: &HeaderMap, body: &[u8]) -> Response {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    if !content_type.starts_with("application/json") {
        let message = "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed".to_owned();
        return refuse(&Refusal { status: 400, kind: "Bad Request", param: None, message });
    }
    let asked = match request::read(kind, body, &app.rules) {
        Ok(asked) => asked,
        Err(refusal) => return refuse(&refusal),
    };
    let number = app.requests.fetch_add(1, Ordering::Relaxed);
    let created = clock::unix_seconds() as u64;
    let wire = Wire::new(kind, &app.config.served_name, created, number, asked.answer_seed);
    let Asked { prompt, output_tokens, stream, include_usage, .. } = asked;
    let usage = Usage { prompt: prompt.tokens, completion: 0, cached: 0 };
    let ticket = app.engine.submit(prompt, output_tokens);
    if !stream {
        return whole(ticket, &wire, usage).await;
    }
    let interval = app.config.stream_interval;
    let ready = VecDeque::with_capacity(4);
    let stream = Answer { ticket, wire, usage, include_usage, interval, sent: 0, ready, over: false };
    let chunks = futures_util::stream::unfold(stream, async |mut answer| {
        let chunk = answer.next().await?;
        Some((Ok::<_, Infallible>(chunk), answer))
    });
    respond(200, Some("text/event-stream; charset=utf-8"), Body::from_stream(chunks))
}

/// An answer that is being streamed.
struct Answer {
    ticket: Ticket,
    wire: Wire,
    usage: Usage,
    include_usage: bool,
    /// Tokens of a chunk behind the first.
    interval: u32,
    /// Tokens that were sent.
    sent: u32,
    /// Chunks that are due now: a token may bring more than its own.
    ready: VecDeque<Bytes>,
    over: bool,
}

impl Answer {
    async fn next(&mut self) -> Option<Bytes> {
        while self.ready.is_empty() && !self.over {
            let token = self.ticket.next().await;
            self.render(token);
        }
        self.ready.pop_front()
    }

    fn render(&mut self, token: Option<Token>) {
        let Some(token) = token else {
            self.over = true;
            self.ready.extend([wire::ENGINE_DEAD, wire::DONE]);
            return;
        };
        if self.usage.completion == 0 {
            self.usage.cached = token.cached;
            self.ready.extend(self.wire.opening());
        }
        self.usage.completion += 1;
        let unsent = self.usage.completion - self.sent;
        if self.sent == 0 || unsent >= self.interval || token.last {
            self.ready.push_back(self.wire.tokens(self.sent..self.usage.completion, token.last));
            self.sent = self.usage.completion;
        }
        if token.last {
            self.over = true;
            self.ready.extend(self.include_usage.then(|| self.wire.usage(self.usage)));
            self.ready.push_back(wire::DONE);
        }
    }
}

/// Waits for the last token and answers with one body.
async fn whole(mut ticket: Ticket, wire: &Wire, mut usage: Usage) -> Response {
    while let Some(token) = ticket.next().await {
        usage.completion += 1;
        usage.cached = token.cached;
        if token.last {
            return respond(200, Some("application/json"), Body::from(wire.whole(usage)));
        }
    }
    let message = "EngineCore encountered an issue. See stack trace (above) for the root cause.".to_owned();
    refuse(&Refusal { status: 500, kind: "InternalServerError", param: None, message })
}

fn refuse(refusal: &Refusal) -> Response {
    reply(refusal.status, refusal.body())
}

fn reply(status: u16, body: Value) -> Response {
    respond(status, Some("application/json"), Body::from(body.to_string()))
}

fn respond(status: u16, content_type: Option<&'static str>, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::SERVER, header::HeaderValue::from_static("uvicorn"));
    if let Some(content_type) = content_type {
        headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    }
    response
}
