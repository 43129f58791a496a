//! Reads the JSON result of `vllm bench serve --save-detailed` as probes.
//!
//! A replay needs when each request was sent. A summary and a result of an older version lack that, and are refused.

use serde::Deserialize;
use serde_json::Value;

use super::configuration::Configuration;
use super::evidence::{Evidence, Recorded};
use crate::twin::Observed;
use crate::units::Seconds;

const REMEDY: &str = "  = hint: calibrate takes a folder of a run, a CSV of requests (also of `autotune bench --out`), or the JSON of `vllm \
                      bench serve --save-detailed` of a version that writes start_times (since January 2026)";

/// Each request's part of a detailed result, in the order of the requests; times in seconds.
#[derive(Deserialize)]
struct Detailed {
    input_lens: Vec<u32>,
    /// Zero for a request without an answer.
    output_lens: Vec<u32>,
    /// Of a clock with an origin of its own.
    start_times: Vec<f64>,
    ttfts: Vec<f64>,
    itls: Vec<Vec<f64>>,
    /// Empty for a whole answer.
    #[serde(default)]
    errors: Vec<String>,
}

/// The probes of a result file: one, or one for each of the results that `--append-result` wrote.
pub(super) fn read(name: &str, text: &[u8]) -> Result<Evidence, String> {
    let results: Result<Vec<Value>, _> = serde_json::Deserializer::from_slice(text).into_iter().collect();
    let results = results.map_err(|e| format!("it is no JSON: {e}"))?;
    let mut evidence = Evidence::default();
    for (index, result) in results.iter().enumerate() {
        if result.get("backend").and_then(Value::as_str).is_some_and(|backend| backend.contains("chat")) {
            let note = "of chats, where `vllm bench serve` takes the role chunk for the first token: TTFT is short";
            evidence.notes.push(note.to_owned());
        }
        let number = if results.len() > 1 { format!(" #{}", index + 1) } else { String::new() };
        let (name, configuration) = (format!("{name}{number}"), Configuration::default());
        evidence.probes.push(Recorded { name, requests: detailed(result)?.requests()?, configuration });
    }
    if !evidence.probes.is_empty() {
        evidence.notes.push("cached tokens are not told: all are replayed as computed".to_owned());
    }
    Ok(evidence)
}

fn detailed(result: &Value) -> Result<Detailed, String> {
    let list = |key: &str| result.get(key).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    if result.get("autotune").is_some() {
        return Err("this result of `autotune bench` leaves out its ramp, which a replay needs\n  = hint: \
                    the CSV of requests beside it has all"
            .to_owned());
    }
    if !["input_lens", "output_lens", "ttfts", "itls"].into_iter().all(list) {
        return Err(format!("there are no requests in it, only their summary\n{REMEDY}"));
    }
    if !list("start_times") {
        return Err(format!("`start_times` is missing: it does not tell when each request was sent\n{REMEDY}"));
    }
    Detailed::deserialize(result).map_err(|e| format!("it is no detailed result of `vllm bench serve`: {e}"))
}

impl Detailed {
    fn requests(&self) -> Result<Vec<Observed>, String> {
        let count = self.start_times.len();
        let lengths = [self.input_lens.len(), self.output_lens.len(), self.ttfts.len(), self.itls.len()];
        if lengths.iter().any(|length| *length != count) || !(self.errors.is_empty() || self.errors.len() == count) {
            return Err("its lists differ in length".to_owned());
        }
        if count > 1 && self.start_times.iter().all(|start| *start == 0.0) {
            return Err(format!("`start_times` is all zero: its backend does not tell them\n{REMEDY}"));
        }
        let origin = self.start_times.iter().copied().fold(f64::INFINITY, f64::min);
        let request = |i: usize| {
            let error = self.errors.get(i).is_some_and(|error| !error.is_empty());
            let failed = error || self.output_lens[i] == 0;
            let sent = self.start_times[i] - origin;
            let first = (!failed).then(|| sent + self.ttfts[i]);
            Observed {
                // The file tells no other time than that of the send, from which its own latencies count too.
                due: Seconds(sent),
                sent: Seconds(sent),
                tokens_in: self.input_lens[i],
                cached: 0,
                shared: 0,
                document: 0,
                turn: None,
                tokens_out: self.output_lens[i],
                first: first.map(Seconds),
                last: first.map(|first| Seconds(first + self.itls[i].iter().sum::<f64>())),
                failed,
                cut: false,
            }
        };
        Ok((0..count).map(request).collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result() -> Value {
        json!({
            "backend": "openai",
            "input_lens": [190, 376, 210],
            "output_lens": [3, 2, 0],
            "start_times": [3487.75, 3488.0, 3488.5],
            "ttfts": [0.5, 0.25, 0.0],
            "itls": [[0.25, 0.5], [0.125], []],
            "errors": ["", "", "Internal Server Error"],
        })
    }

    #[test]
    fn a_detailed_result_is_a_probe() {
        let read = read("a.json", result().to_string().as_bytes()).unwrap();
        let [a, _, failed] = read.probes[0].requests[..] else { panic!("three requests") };
        assert_eq!((a.sent, a.first, a.last), (Seconds(0.0), Some(Seconds(0.5)), Some(Seconds(1.25))));
        assert_eq!((a.tokens_in, a.tokens_out, a.tpot()), (190, 3, Some(0.375)));
        assert_eq!((failed.sent, failed.first, failed.failed), (Seconds(0.75), None, true));
        let twice = format!("{}\n{}\n", result(), result());
        let names: Vec<String> =
            super::read("a.json", twice.as_bytes()).unwrap().probes.into_iter().map(|p| p.name).collect();
        assert_eq!(names, ["a.json #1", "a.json #2"]);
    }

    #[test]
    fn what_cannot_be_replayed_says_what_is_missing() {
        let said = |change: fn(&mut Value)| {
            let mut file = result();
            change(&mut file);
            read("a.json", file.to_string().as_bytes()).unwrap_err()
        };
        let summary = said(|file| *file = json!({ "completed": 60, "p99_ttft_ms": 92.9 }));
        assert!(summary.contains("summary") && summary.contains("--save-detailed"), "{summary}");
        let times = said(|file| drop(file.as_object_mut().unwrap().remove("start_times")));
        assert!(times.contains("`start_times` is missing") && times.contains("autotune bench --out"), "{times}");
        assert!(said(|file| file["start_times"] = json!([0.0, 0.0, 0.0])).contains("all zero"));
        assert!(said(|file| file["ttfts"] = json!([0.5])).contains("length"));
        assert!(said(|file| file["autotune"] = json!({})).contains("CSV"));
    }

    #[test]
    fn fuzz_bench_results() {
        let summary = include_str!("../../tests/data/vllm/bench_serve_result.json");
        autotune_fuzz::fuzz(3, [result().to_string(), summary.to_owned()], |input, _| drop(read("a.json", input)));
    }
}
