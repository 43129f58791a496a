//! The HTTP face of the simulated engine: vLLM's endpoints.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post};
use serde_json::{Value, json};

use super::answer::{self, Manner, Stream};
use super::engine::{EngineHandle, Snapshot};
use super::faults::Fault;
use super::info::{self, Config};
use super::metrics;
use super::refusal::Refusal;
use super::request::{self, Asked, Kind, Rules};
use super::sglang;
use super::tokenize;
use super::trtllm;
use super::wire::Wire;
use super::{SimArgs, SimDialect};
use autotune_clock as clock;
use autotune_http::serving;

#[derive(Debug)]
pub(super) struct App {
    pub(super) config: Config,
    pub(super) rules: Rules,
    pub(super) engine: EngineHandle,
    /// Whether `/health` answers 200.
    pub(super) healthy: AtomicBool,
    pub(super) requests: AtomicU64,
    /// Makes the ids of answers.
    pub(super) seed: u64,
    /// A request needs one of these keys; if there are none, it needs no key.
    pub(super) api_keys: Vec<String>,
    pub(super) fault: Fault,
    /// Requests after which a fault of the answers strikes.
    pub(super) fault_after: u64,
}

type Shared = State<Arc<App>>;

/// Paths that need a key, if keys were given. All others are open, as in vLLM.
const GUARDED: [&str; 4] = ["/v1", "/v2", "/inference", "/cohere"];

/// All endpoints; of vLLM some are there in developer mode alone, as with `VLLM_SERVER_DEV_MODE=1`.
pub(super) fn router(app: Arc<App>, args: &SimArgs) -> Router {
    let router = match args.sim_dialect {
        SimDialect::Vllm => {
            let mut router = Router::new()
                .route("/version", get(async || reply(200, json!({"version": "0.32.0+sim"}))))
                .route("/metrics", get(async |State(app): Shared| page(&app, metrics::page).await))
                .route("/health", get(health));
            if args.sim_dev_mode {
                let info = async |State(app): Shared| reply(200, info::server_info(&app.config));
                router = router.route("/server_info", get(info)).route("/reset_prefix_cache", post(reset_prefix_cache));
            }
            router
        }
        SimDialect::Sglang => {
            let router = Router::new()
                .route("/health", get(health))
                .route("/health_generate", get(health))
                .route("/server_info", get(async |State(app): Shared| reply(200, sglang::server_info(&app.config))))
                .route("/flush_cache", get(flush_cache).post(flush_cache));
            let metrics = async |State(app): Shared| page(&app, sglang::metrics).await;
            if args.sim_metrics { router.route("/metrics", get(metrics)) } else { router }
        }
        SimDialect::Trtllm => {
            // What Dynamo's frontend answers.
            let metrics = async |State(app): Shared| page(&app, trtllm::frontend_metrics).await;
            let health = async |State(app): Shared| reply(200, trtllm::health(app.healthy.load(Ordering::Relaxed)));
            Router::new().route("/metrics", get(metrics)).route("/health", get(health))
        }
        // lib.rs starts `trtllm::frontend` instead.
        SimDialect::Frontend => Router::new(),
    };
    router
        .route("/v1/models", get(async |State(app): Shared| reply(200, info::models(&app.config))))
        .route("/tokenize", post(tokenize))
        .route("/v1/completions", post(completions))
        .route("/v1/chat/completions", post(chat_completions))
        .fallback(async || reply(404, json!({"detail": "Not Found"})))
        .method_not_allowed_fallback(async || reply(405, json!({"detail": "Method Not Allowed"})))
        .layer(from_fn_with_state(Arc::clone(&app), authenticate))
        .with_state(app)
}

/// Rejects requests without a known key, if keys were given.
async fn authenticate(State(app): Shared, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let open = app.api_keys.is_empty()
        || request.method() == Method::OPTIONS
        || !GUARDED.iter().any(|guarded| path.starts_with(guarded));
    let named = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let known = named.and_then(|value| value.split_once(' ')).is_some_and(|(scheme, key)| {
        scheme.eq_ignore_ascii_case("bearer") && app.api_keys.iter().any(|known| known == key)
    });
    if open || known { next.run(request).await } else { reply(401, json!({"error": "Unauthorized"})) }
}

async fn health(State(app): Shared) -> Response {
    respond(if app.healthy.load(Ordering::Relaxed) { 200 } else { 503 }, None, Body::empty())
}

/// A page of metrics, as an engine writes it.
pub(super) async fn page(app: &App, written: impl Fn(&Config, &Snapshot) -> String) -> Response {
    match app.engine.observe().await {
        Some(snapshot) => {
            let page = written(&app.config, &snapshot);
            respond(200, Some("text/plain; version=1.0.0; charset=utf-8"), Body::from(page))
        }
        None => refuse(&Refusal::engine_dead()),
    }
}

/// As SGLang does, it answers 400 while requests run.
async fn flush_cache(State(app): Shared) -> Response {
    let (status, says) =
        if app.engine.reset_prefix_cache().await { (200, "Cache flushed.\n") } else { (400, "Flush cache failed.\n") };
    respond(status, Some("text/plain; charset=utf-8"), Body::from(says))
}

async fn reset_prefix_cache(State(app): Shared) -> Response {
    let success = app.engine.reset_prefix_cache().await;
    reply(200, json!({"success": success}))
}

async fn tokenize(State(app): Shared, body: Bytes) -> Response {
    tokenize::tokenize(&body, &app.rules).map_or_else(|refusal| refuse(&refusal), |answer| reply(200, answer))
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
        let message = "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed";
        return refuse(&Refusal { kind: "Bad Request", ..Refusal::bad(message) });
    }
    let asked = match request::read(kind, body, &app.rules) {
        Ok(asked) => asked,
        Err(refusal) => return refuse(&refusal),
    };
    let number = app.requests.fetch_add(1, Ordering::Relaxed);
    let struck = number >= app.fault_after;
    if struck && app.fault == Fault::ErrorsInLoad {
        return refuse(&Refusal::engine_dead());
    }
    let created = clock::unix_seconds() as u64;
    let wire = Wire::new(kind, &app.config.served_name, created, app.seed.wrapping_add(number), asked.answer_seed);
    let Asked { order, stream, include_usage, stream_interval, .. } = asked;
    let prompt = order.prompt.tokens;
    let manner = Manner {
        include_usage,
        interval: stream_interval.max(app.config.stream_interval),
        cut_after: (struck && app.fault == Fault::CutStreams).then_some(order.output_tokens.div_ceil(2)),
    };
    let ticket = app.engine.submit(order);
    if stream {
        let body = Stream::new(ticket, wire, manner, prompt).body();
        return respond(200, Some("text/event-stream; charset=utf-8"), body);
    }
    match answer::whole(ticket, &wire, prompt).await {
        Ok(body) => respond(200, Some("application/json"), Body::from(body)),
        Err(refusal) => refuse(&refusal),
    }
}

fn refuse(refusal: &Refusal) -> Response {
    respond(refusal.status, Some("application/json"), Body::from(refusal.body()))
}

fn reply(status: u16, body: Value) -> Response {
    respond(status, Some("application/json"), Body::from(body.to_string()))
}

fn respond(status: u16, content_type: Option<&'static str>, body: Body) -> Response {
    let mut response = serving::respond(status, content_type, body);
    response.headers_mut().insert(header::SERVER, header::HeaderValue::from_static("uvicorn"));
    response
}
