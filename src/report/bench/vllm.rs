//! The result file of `vllm bench serve`, so that scripts which read it read ours.

use serde_json::{Map, Value, json};

use super::VERSION;
use super::level::{Level, Offered};
use super::spread::Spread;
use super::summary::Summary;
use crate::clock::utc;
use crate::load::RequestRecord;
use crate::settings::Endpoint;
use crate::units::{Rate, Seconds};

/// The keys of the detailed result file of `vllm bench serve` 0.32, and ours under the key `autotune`.
///
/// Units are that file's: seconds, and milliseconds in keys that end in `_ms`. It differs in meaning where that file misleads:
///
/// - `num_prompts`, `completed`, `failed`, the token totals and every list are of the requests due within the window, without ramp;
///   `duration` is the window, without drain. `request_throughput`, `request_goodput` and the token throughputs are of the answers that
///   ended within it, and so need not be a total divided by `duration`.
/// - Times count from the intended send: `start_times` are intended sends (seconds from the start of the traffic), `ttfts` and `latencies`
///   count from there, and `e2el` already includes the client's queue; `e2el_including_client_queue` is the same.
/// - `itls` are gaps between reads that brought tokens, without the microseconds between tokens of one read.
/// - Percentiles are observations, never points between two.
/// - Where nothing was answered, latencies are null, not 0.0; so are those of failed requests in the lists. `errors` holds the class of a
///   failure, and `generated_texts` are empty, since no text is kept.
/// - `date` is UTC. `tokenizer_id` is the model, since the server's own tokenizer counted.
pub fn vllm_keys(level: &Level, summary: &Summary) -> Value {
    let mut file = Map::new();
    file.extend(about(level, summary));
    file.extend(totals(summary));
    file.extend(speculation(summary));
    file.extend(lists(level, summary));
    for (metric, spread) in [
        ("ttft", summary.ttft),
        ("tpot", summary.tpot),
        ("itl", summary.itl),
        ("e2el", summary.e2e),
        ("client_queue_time", summary.send_lag),
        ("e2el_including_client_queue", summary.e2e),
    ] {
        file.extend(quantiles(metric, spread));
    }
    file.insert("autotune".to_owned(), ours(level, summary));
    Value::Object(file)
}

/// The summary as one object, with the version of its format and what was measured.
fn ours(level: &Level, summary: &Summary) -> Value {
    let mut ours = json!({ "version": VERSION, "tool_version": env!("CARGO_PKG_VERSION"), "meta": level.meta });
    if let (Value::Object(ours), Ok(Value::Object(summary))) = (&mut ours, serde_json::to_value(summary)) {
        ours.extend(summary);
    }
    ours
}

fn about(level: &Level, summary: &Summary) -> Map<String, Value> {
    let meta = &level.meta;
    let endpoint = match meta.endpoint {
        Endpoint::Completions => "openai",
        Endpoint::Chat => "openai-chat",
    };
    // JSON has no infinity; that file writes the word.
    let finite = |number: f64| if number.is_finite() { json!(number) } else { json!("inf") };
    let (rate, users) = match level.offered {
        Offered::Rate(rate) => (rate.0, None),
        Offered::Users(users) => (f64::INFINITY, Some(users)),
        Offered::AllAtOnce(_) | Offered::Recorded => (f64::INFINITY, None),
    };
    object(json!({
        "date": utc(meta.started, "%Y%m%d-%H%M%S"),
        "endpoint_type": endpoint,
        "backend": endpoint,
        "label": meta.label,
        "model_id": meta.model,
        "tokenizer_id": meta.model,
        "num_prompts": summary.counted,
        "request_rate": finite(rate),
        "burstiness": finite(meta.burstiness),
        "max_concurrency": users.or(meta.max_concurrency),
    }))
}

fn totals(summary: &Summary) -> Map<String, Value> {
    let (input, output) = (summary.input_throughput, summary.output_throughput);
    object(json!({
        "duration": summary.window.length(),
        "completed": summary.completed,
        "failed": summary.failed,
        "total_input_tokens": summary.input_tokens,
        "total_output_tokens": summary.output_tokens,
        "request_throughput": summary.achieved_rate,
        "request_goodput": summary.goodput,
        "output_throughput": output,
        "total_token_throughput": input.zip(output).map(|(input, output)| input.0 + output.0),
        "max_output_tokens_per_s": summary.peak_output_throughput,
        "max_concurrent_requests": summary.peak_concurrency,
        // The real-time factor of audio, which no text has; that file writes 0.0 too.
        "rtfx": Rate(0.0),
    }))
}

/// Where drafts were verified, as in that file: the rate in percent.
fn speculation(summary: &Summary) -> Map<String, Value> {
    let (rate, length) = (summary.telemetry.acceptance_rate, summary.telemetry.acceptance_length);
    let keys =
        [("spec_decode_acceptance_rate", rate.map(|rate| rate * 100.0)), ("spec_decode_acceptance_length", length)];
    keys.into_iter().filter_map(|(key, value)| Some((key.to_owned(), json!(value?)))).collect()
}

fn lists(level: &Level, summary: &Summary) -> Map<String, Value> {
    let counted: Vec<&RequestRecord> = level.records.iter().filter(|r| summary.window.holds(r.due)).collect();
    let list = |each: fn(&RequestRecord) -> Value| counted.iter().map(|r| each(r)).collect::<Vec<Value>>();
    object(json!({
        "input_lens": list(|r| json!(r.tokens_in)),
        // Tokens of whole answers: that file also counts none for a failed request.
        "output_lens": list(|r| if r.complete() { json!(r.tokens_out) } else { json!(0) }),
        "ttfts": list(|r| json!(whole(r, r.ttft()))),
        "itls": list(|r| if r.complete() { gaps(r) } else { json!([]) }),
        "latencies": list(|r| json!(whole(r, r.e2e()))),
        "start_times": list(|r| json!(r.due)),
        "queue_times": list(|r| json!(r.sent - r.due)),
        "generated_texts": list(|_| json!("")),
        "errors": list(|r| json!(r.error.map_or("", |class| class.name()))),
    }))
}

/// A latency of a whole answer; the lists agree with the quantiles that way.
fn whole(record: &RequestRecord, latency: Option<Seconds>) -> Option<Seconds> {
    latency.filter(|_| record.complete())
}

/// To the nanosecond, which is finer than any clock read here, without the digits that widening a short float invents.
fn gaps(record: &RequestRecord) -> Value {
    record.gaps.iter().map(|gap| (f64::from(*gap) * 1e9).round() / 1e9).collect()
}

fn quantiles(metric: &str, spread: Option<Spread>) -> Map<String, Value> {
    let key = |name: &str, value: fn(&Spread) -> Seconds| {
        (format!("{name}_{metric}_ms"), json!(spread.as_ref().map(|s| value(s).millis())))
    };
    Map::from_iter([
        key("mean", |s| s.mean),
        key("median", |s| s.median),
        key("std", |s| s.std),
        key("p50", |s| s.median),
        key("p90", |s| s.p90),
        key("p95", |s| s.p95),
        key("p99", |s| s.p99),
    ])
}

fn object(value: Value) -> Map<String, Value> {
    if let Value::Object(map) = value { map } else { Map::new() }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{at_rate, failed, level, records};
    use super::*;
    use crate::load::ErrorClass;

    fn file(level: &Level) -> Value {
        vllm_keys(level, &Summary::of(level))
    }

    /// `vllm bench serve --save-detailed` 0.32 with its lists shortened; the key of its `--metadata` flag is left out.
    fn theirs() -> Map<String, Value> {
        object(serde_json::from_str(include_str!("../../../tests/data/vllm/bench_serve_result.json")).unwrap())
    }

    fn kind(value: &Value) -> String {
        match value {
            Value::Null => "null".into(),
            Value::Bool(_) => "bool".into(),
            Value::Number(n) if n.is_f64() => "float".into(),
            Value::Number(_) => "integer".into(),
            Value::String(_) => "string".into(),
            Value::Array(list) => format!("[{}]", list.first().map_or_else(|| "?".into(), kind)),
            Value::Object(_) => "object".into(),
        }
    }

    #[test]
    fn every_key_of_theirs_is_there_with_its_type() {
        let mut at_a_rate = at_rate(10.0, 0.5, "ttft_p99=2s");
        at_a_rate.meta.max_concurrency = Some(20);
        let ours = object(file(&at_a_rate));
        for (key, value) in theirs() {
            assert_eq!(ours.get(&key).map(kind), Some(kind(&value)), "{key}");
        }
        let new: Vec<&String> = ours.keys().filter(|key| !theirs().contains_key(*key)).collect();
        assert_eq!(new, ["autotune"]);
        at_a_rate.telemetry.acceptance_rate = Some(0.745);
        at_a_rate.telemetry.acceptance_length = Some(2.97);
        let speculates = file(&at_a_rate);
        assert_eq!(
            (&speculates["spec_decode_acceptance_rate"], &speculates["spec_decode_acceptance_length"]),
            (&json!(74.5), &json!(2.97))
        );
        let closed = file(&level(Offered::Users(20), records(10.0, 0.5), ""));
        assert_eq!((&closed["max_concurrency"], &closed["request_rate"]), (&json!(20), &json!("inf")));
        assert_eq!((&closed["request_goodput"], &closed["date"]), (&Value::Null, &json!("20261121-060413")));
    }

    #[test]
    fn units_are_theirs() {
        let ours = file(&at_rate(10.0, 0.5, ""));
        let close = |value: &Value, to: f64| assert!((value.as_f64().unwrap() - to).abs() < 1e-6, "{value} {to}");
        close(&ours["p99_ttft_ms"], 700.0);
        close(&ours["ttfts"][4], 0.7);
        close(&ours["mean_client_queue_time_ms"], 0.2);
        close(&ours["duration"], 10.0);
        close(&ours["request_throughput"], 10.0);
        close(&ours["total_token_throughput"], 2_200.0);
        assert_eq!((&ours["num_prompts"], ours["errors"].as_array().unwrap().len()), (&json!(100), 100));
    }

    #[test]
    fn where_nothing_was_answered_no_latency_is_zero() {
        let all_failed = (0..20).map(|i| failed(i, 2.0 + f64::from(i) / 2.0, ErrorClass::Status)).collect();
        let ours = object(file(&level(Offered::Users(4), all_failed, "")));
        for (key, value) in ours.iter().filter(|(key, _)| key.ends_with("_ms")) {
            assert_eq!(value, &Value::Null, "{key}");
        }
        assert_eq!(
            (&ours["completed"], &ours["failed"], &ours["errors"][0]),
            (&json!(0), &json!(20), &json!("status"))
        );
        assert_eq!((&ours["ttfts"][0], &ours["output_lens"][0]), (&Value::Null, &json!(0)));
        assert_eq!(ours["autotune"]["errors"]["status"], json!(20));
        assert_eq!((&ours["autotune"]["version"], &ours["autotune"]["meta"]["seed"]), (&json!(1), &json!(7)));
    }
}
