//! Refusals of requests, in the form that OpenAI gave them and with vLLM's words.

use serde_json::Value;

/// Why a request is not served.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) kind: &'static str,
    pub(super) param: Option<String>,
    pub(super) message: String,
}

impl Refusal {
    /// A bad request (HTTP 400).
    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self { status: 400, kind: "BadRequestError", param: None, message: message.into() }
    }

    /// A bad request, with the field at fault.
    pub(super) fn of(param: &str, message: impl Into<String>) -> Self {
        Self { param: Some(param.to_owned()), ..Self::bad(message) }
    }

    /// A field that cannot be read, found before anybody looked at what it means.
    pub(super) fn invalid(kind: &str, place: &str, says: &str, input: &Value) -> Self {
        let input = match input {
            Value::String(text) => text.clone(),
            Value::Array(items) => format!("<list of {} items>", items.len()),
            Value::Object(fields) => format!("<dict of {} items>", fields.len()),
            other => other.to_string(),
        };
        let message = format!(
            "1 validation error:\n  {{'type': '{kind}', 'loc': '{place}', 'msg': '{says}', 'input': '{input}'}}"
        );
        Self { kind: "Bad Request", ..Self::of(place, message) }
    }

    pub(super) fn no_json() -> Self {
        let message = "1 validation error:\n  {'type': 'json_invalid', 'loc': 'body.0', 'msg': 'JSON decode error', 'input': \
                       '<dict of 0 items>', 'ctx': {'error': 'Expecting value'}}";
        Self { kind: "Bad Request", ..Self::of("body.0", message) }
    }

    /// The engine's death, found by a request.
    pub(super) fn engine_dead() -> Self {
        let message = "EngineCore encountered an issue. See stack trace (above) for the root cause.".to_owned();
        Self { status: 500, kind: "InternalServerError", param: None, message }
    }

    /// The body that goes with the status, with its keys in vLLM's order.
    pub(super) fn body(&self) -> String {
        let message = Value::from(self.message.as_str());
        let param = self.param.as_deref().map_or(Value::Null, Value::from);
        format!(r#"{{"error":{{"message":{message},"type":"{}","param":{param},"code":{}}}}}"#, self.kind, self.status)
    }
}
