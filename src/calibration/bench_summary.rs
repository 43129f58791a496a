//! The summary that a JSON result of `vllm bench serve` holds: how its requests were sent, and what they took.

use serde_json::Value;

use crate::twin::{Aggregate, Aggregates};
use crate::units::Rate;

/// What a result tells of its run as a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Requests per second; none where all were sent at once.
    pub rate: Option<Rate>,
    /// The shape of the gamma distribution of the gaps between requests; 1 for Poisson arrivals.
    pub burstiness: f64,
    pub prompts: u32,
    pub completed: u32,
    /// Tokens of a prompt, the mean over what was answered.
    pub input_tokens: f64,
    /// Tokens of an answer, the mean.
    pub output_tokens: f64,
    /// The latencies, in seconds.
    pub measured: Aggregates,
}

impl Summary {
    /// Reads it.
    ///
    /// # Errors
    /// What is missing or stands against a replay, as the end of a sentence about the result.
    pub(super) fn read(result: &Value) -> Result<Self, String> {
        let number = |key: &str| result.get(key).and_then(Value::as_f64);
        let needed = |key: &str| number(key).filter(|n| *n > 0.0).ok_or_else(|| format!("which lacks `{key}`"));
        let rate = match result.get("request_rate") {
            Some(Value::String(text)) if text == "inf" => None,
            _ => Some(Rate(needed("request_rate")?)),
        };
        let (prompts, completed) = (needed("num_prompts")?, needed("completed")?);
        if number("max_concurrency").is_some_and(|most| most < prompts) {
            return Err("and `max_concurrency` held its requests back, which is not replayed".to_owned());
        }
        if result.get("ramp_up_strategy").is_some_and(|strategy| !strategy.is_null()) {
            return Err("and its rate rose by `ramp_up_strategy`, which is not replayed".to_owned());
        }
        let measured =
            Aggregates { ttft: latency(result, "ttft"), tpot: latency(result, "tpot"), itl: latency(result, "itl") };
        if measured == Aggregates::default() {
            return Err("which has no latency".to_owned());
        }
        Ok(Self {
            rate,
            burstiness: number("burstiness").filter(|shape| *shape > 0.0).unwrap_or(1.0),
            prompts: prompts as u32,
            completed: completed as u32,
            input_tokens: needed("total_input_tokens")? / completed,
            output_tokens: needed("total_output_tokens")? / completed,
            measured,
        })
    }

    /// How many numbers it measured.
    pub fn numbers(&self) -> usize {
        let Aggregates { ttft, tpot, itl } = &self.measured;
        [ttft, tpot, itl].into_iter().flat_map(Aggregate::values).flatten().count()
    }
}

/// A latency as the file has it, in milliseconds; the median stands there by one of two names. A latency of zero was not measured.
fn latency(result: &Value, name: &str) -> Aggregate {
    let value = |of: &str| {
        let ms = result.get(format!("{of}_{name}_ms")).and_then(Value::as_f64);
        ms.filter(|ms| *ms > 0.0).map(|ms| ms / 1e3)
    };
    Aggregate {
        mean: value("mean"),
        p50: value("p50").or_else(|| value("median")),
        p95: value("p95"),
        p99: value("p99"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result() -> Value {
        json!({
            "request_rate": 20.0, "burstiness": 0.5, "max_concurrency": null, "num_prompts": 300, "completed": 297,
            "total_input_tokens": 297_000, "total_output_tokens": 38_016,
            "mean_ttft_ms": 57.0, "median_ttft_ms": 47.5, "p99_ttft_ms": 136.5, "p50_tpot_ms": 9.0, "p95_tpot_ms": 0.0,
        })
    }

    #[test]
    fn it_is_read_in_seconds_and_tokens_a_request() {
        let read = Summary::read(&result()).unwrap();
        assert_eq!((read.rate, read.burstiness, read.prompts), (Some(Rate(20.0)), 0.5, 300));
        assert_eq!((read.input_tokens, read.output_tokens, read.numbers()), (1000.0, 128.0, 4));
        assert_eq!(
            read.measured.ttft,
            Aggregate { mean: Some(0.057), p50: Some(0.0475), p95: None, p99: Some(0.1365) }
        );
        let mut at_once = result();
        at_once["request_rate"] = json!("inf");
        assert_eq!(Summary::read(&at_once).unwrap().rate, None);
    }

    #[test]
    fn what_stands_against_a_replay_is_said() {
        for (key, value) in [
            ("num_prompts", json!(null)),
            ("total_output_tokens", json!(0)),
            ("max_concurrency", json!(16)),
            ("ramp_up_strategy", json!("linear")),
        ] {
            let mut result = result();
            result[key] = value;
            let said = Summary::read(&result).unwrap_err();
            assert!(said.contains(key), "{said}");
        }
        let none = json!({"request_rate": 1, "num_prompts": 1, "completed": 1});
        assert!(Summary::read(&none).unwrap_err().contains("no latency"));
    }
}
