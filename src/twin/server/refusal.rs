//! Refusals of requests, in the form that OpenAI gave them and with vLLM's words.

use serde_json::{Value, json};

/// Why a request is not served.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) kind: &'static str,
    pub(super) param: Option<String>,
    pub(super) message: String,
}

impl Refusal {
    /// A value that no answer can have, found by the engine.
    pub(super) fn bad(param: &str, message: String) -> Self {
        Self { status: 400, kind: "BadRequestError", param: Some(param.to_owned()), message }
    }

    /// A body that is none, found before anybody looked at what it means.
    pub(super) fn invalid(param: Option<&str>, kind: &str, place: &str, message: &str, context: &str) -> Self {
        let message = format!(
            "1 validation error:\n  {{'type': '{kind}', 'loc': '{place}', 'msg': '{message}', 'input': {context}}}"
        );
        let param = Some(param.unwrap_or(place).to_owned());
        Self { status: 400, kind: "Bad Request", param, message }
    }

    /// The engine's death, found by a request.
    pub(super) fn engine_dead() -> Self {
        let message = "EngineCore encountered an issue. See stack trace (above) for the root cause.".to_owned();
        Self { status: 500, kind: "InternalServerError", param: None, message }
    }

    /// The body that goes with the status.
    pub(super) fn body(&self) -> Value {
        json!({"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}})
    }
}
