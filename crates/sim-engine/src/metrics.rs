//! The page of `/metrics` in Prometheus' text format, with the names, labels and order of vLLM 0.32.
//!
//! It has the families that a client of the simulated engine reads.

use std::fmt::{Display, Write};

use serde_json::Value;

use super::engine::Snapshot;
use super::info::Config;
use super::observations::Histogram;

pub(super) fn page(config: &Config, snapshot: &Snapshot) -> String {
    let mut page = Page::new(config);
    speculation(&mut page, snapshot);
    state(&mut page, snapshot);
    totals(&mut page, config, snapshot);
    for (name, help, histogram) in snapshot.observed.families() {
        page.histogram(name, help, histogram);
    }
    cache(&mut page, config);
    page.text
}

fn speculation(page: &mut Page, snapshot: &Snapshot) {
    let Some(drafted) = &snapshot.drafted else { return };
    page.counter("spec_decode_num_drafts", "Number of spec decoding drafts.", drafted.drafts);
    page.counter("spec_decode_num_draft_tokens", "Number of draft tokens.", drafted.tokens);
    page.counter("spec_decode_num_accepted_tokens", "Number of accepted tokens.", drafted.accepted);
    let help = "Accepted tokens per draft position.";
    page.counters("spec_decode_num_accepted_tokens_per_pos", help, "position", (0..).zip(&drafted.accepted_at));
}

fn state(page: &mut Page, snapshot: &Snapshot) {
    let c = snapshot.counters;
    page.gauge("num_requests_running", "Number of requests in model execution batches.", c.running.into());
    page.gauge("num_requests_waiting", "Number of requests waiting to be processed.", c.waiting.into());
    page.gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", c.kv_usage);
}

fn totals(page: &mut Page, config: &Config, snapshot: &Snapshot) {
    let c = snapshot.counters;
    // Without a prefix cache nothing is looked up.
    let queries = if config.prefix_caching { c.prefix_queries } else { 0 };
    for (name, help, value) in [
        ("prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.", queries),
        ("prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", c.prefix_hits),
        ("num_preemptions", "Cumulative number of preemption from the engine.", c.preemptions),
        ("prompt_tokens", "Number of prefill tokens processed.", c.prompt_tokens),
        ("generation_tokens", "Number of generation tokens processed.", c.generation_tokens),
    ] {
        page.counter(name, help, value);
    }
    // Aborted requests are counted nowhere, as in vLLM 0.32.
    let reasons = ["stop", "length", "abort", "error", "repetition"];
    let counts = [0, snapshot.completed, 0, 0, 0];
    let help = "Count of successfully processed requests.";
    page.counters("request_success", help, "finished_reason", reasons.iter().zip(&counts));
}

fn cache(page: &mut Page, config: &Config) {
    let _ = writeln!(
        page.text,
        "# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig\n# TYPE vllm:cache_config_info gauge\n\
         vllm:cache_config_info{{block_size=\"{}\",cache_dtype=\"auto\",enable_prefix_caching=\"{}\",engine=\"0\",\
         gpu_memory_utilization=\"{:?}\",kv_cache_max_concurrency=\"{:?}\",kv_cache_size_tokens=\"{}\",num_gpu_blocks=\"{}\"}} 1.0",
        config.limits.block_size,
        if config.prefix_caching { "True" } else { "False" },
        config.gpu_memory_utilization,
        config.max_concurrency(),
        config.limits.kv_tokens(),
        config.limits.num_blocks,
    );
}

/// The text so far, and what the labels of most families have in common.
struct Page {
    text: String,
    model: String,
    started: f64,
}

impl Page {
    fn new(config: &Config) -> Self {
        let model = format!("model_name={}", Value::from(config.served_name.as_str()));
        Self { text: String::with_capacity(40_000), model, started: config.started as f64 }
    }

    /// The labels with one more in its place: they stand in the order of their names, as the Prometheus client of Python writes them.
    fn labels(&self, name: &str, value: &str) -> String {
        match name {
            "" => format!("engine=\"0\",{}", self.model),
            _ if name < "model_name" => format!("engine=\"0\",{name}=\"{value}\",{}", self.model),
            _ => format!("engine=\"0\",{},{name}=\"{value}\"", self.model),
        }
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, "gauge", help, &[(self.labels("", ""), value)]);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "counter", help, &[(self.labels("", ""), value as f64)]);
    }

    fn counters<'a>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl Iterator<Item = (impl Display, &'a u64)>,
    ) {
        let labelled = |(of, value): (_, &u64)| (self.labels(label, &format!("{of}")), *value as f64);
        let samples: Vec<(String, f64)> = values.map(labelled).collect();
        self.family(name, "counter", help, &samples);
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        let _ = writeln!(self.text, "# HELP vllm:{name} {help}\n# TYPE vllm:{name} histogram");
        let all = self.labels("le", "+Inf");
        let _ = writeln!(self.text, "vllm:{name}_bucket{{{all}}} {}", number(histogram.count as f64));
        let labels = self.labels("", "");
        let _ = writeln!(self.text, "vllm:{name}_count{{{labels}}} {}", number(histogram.count as f64));
        let _ = writeln!(self.text, "vllm:{name}_sum{{{labels}}} {}", number(histogram.sum));
        self.family(&format!("{name}_created"), "gauge", help, &[(labels, self.started)]);
    }

    fn family(&mut self, name: &str, kind: &str, help: &str, samples: &[(String, f64)]) {
        let suffix = if kind == "counter" { "_total" } else { "" };
        let _ = writeln!(self.text, "# HELP vllm:{name}{suffix} {help}\n# TYPE vllm:{name}{suffix} {kind}");
        for (labels, value) in samples {
            let _ = writeln!(self.text, "vllm:{name}{suffix}{{{labels}}} {}", number(*value));
        }
        if kind == "counter" {
            let created: Vec<(String, f64)> =
                samples.iter().map(|(labels, _)| (labels.clone(), self.started)).collect();
            self.family(&format!("{name}_created"), "gauge", help, &created);
        }
    }
}

/// A number as Python's client writes it: with an exponent from a million on.
fn number(value: f64) -> String {
    let text = format!("{value:?}");
    match text.split_once('.') {
        Some((whole, fraction)) if value > 0.0 && whole.len() > 6 => {
            let digits = format!("{}.{}{fraction}", &whole[..1], &whole[1..]);
            format!("{}e+{:02}", digits.trim_end_matches('0').trim_end_matches('.'), whole.len() - 1)
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::observations::Observations;
    use autotune_twin::{Counters, Drafted, Limits};

    fn config() -> Config {
        Config {
            model: "models/small".to_owned(),
            served_name: "tiny".to_owned(),
            limits: Limits { max_num_seqs: 128, max_num_batched_tokens: 2048, num_blocks: 1024, block_size: 128 },
            max_model_len: 8192,
            gpu_memory_utilization: 0.92,
            prefix_caching: true,
            stream_interval: 1,
            speculative: None,
            started: 1_795_241_008,
        }
    }

    fn of(drafted: Option<Drafted>) -> String {
        let snapshot =
            Snapshot { counters: Counters::default(), completed: 60, observed: Observations::default(), drafted };
        page(&config(), &snapshot)
    }

    /// A family's name, type and help.
    type Family = (String, String, String);
    /// The label sets of each name.
    type Samples = BTreeMap<String, Vec<String>>;

    /// Families with their help and type, in order, and the label sets of each sample without the values.
    fn families(text: &str) -> (Vec<Family>, Samples) {
        let (mut families, mut samples, mut help) = (Vec::new(), Samples::new(), String::new());
        for line in text.lines().map(|line| line.split(' ').collect::<Vec<&str>>()) {
            match line.as_slice() {
                ["#", "HELP", _, rest @ ..] => help = rest.join(" "),
                ["#", "TYPE", name, kind] => families.push(((*name).to_owned(), (*kind).to_owned(), help.clone())),
                [sample, ..] => {
                    let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
                    samples.entry(name.to_owned()).or_default().push(labels.to_owned());
                }
                [] => {}
            }
        }
        (families, samples)
    }

    #[test]
    fn each_family_has_the_place_and_the_labels_of_the_real_one() {
        let real = families(include_str!("../../../tests/data/vllm/metrics_after_load.txt"));
        let ours = families(&of(None));
        // The committed page was taken over without the times of creation, one behind each counter and histogram.
        let (created, rest): (Vec<_>, Vec<_>) = ours.0.into_iter().partition(|(name, ..)| name.ends_with("_created"));
        let expected: Vec<_> = real.0.into_iter().filter(|family| rest.contains(family)).collect();
        assert_eq!(rest, expected);
        assert_eq!(created.len(), rest.iter().filter(|(_, kind, _)| kind != "gauge").count());
        // Nor has it the buckets of histograms.
        let kept = |name: &str| !name.ends_with("_created") && !name.ends_with("_bucket");
        for (name, labels) in ours.1.iter().filter(|(name, _)| kept(name)) {
            assert!(name == "vllm:cache_config_info" || real.1.get(name) == Some(labels), "{name}");
        }
        let names = |samples: &Samples| -> BTreeSet<String> {
            samples["vllm:cache_config_info"][0]
                .split(',')
                .filter_map(|l| Some(l.split_once('=')?.0.to_owned()))
                .collect()
        };
        assert!(names(&ours.1).is_subset(&names(&real.1)));
    }

    #[test]
    fn speculation_has_its_counters_where_it_is_on() {
        assert!(!of(None).contains("spec_decode"));
        let text = of(Some(Drafted { drafts: 796, tokens: 2108, accepted: 1570, accepted_at: vec![656, 512, 402] }));
        for line in [
            "# TYPE vllm:spec_decode_num_drafts_total counter",
            r#"vllm:spec_decode_num_drafts_total{engine="0",model_name="tiny"} 796.0"#,
            r#"vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="tiny"} 2108.0"#,
            r#"vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="tiny"} 1570.0"#,
            r#"vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="tiny",position="2"} 402.0"#,
        ] {
            assert!(text.lines().any(|l| l == line), "{line}");
        }
    }

    #[test]
    fn numbers_are_written_as_python_writes_them() {
        let written = [0.0, 1.0, 0.001, 16384.0, 999_999.5, 1_080_000.0, 1_795_241_008.5].map(number);
        assert_eq!(written, ["0.0", "1.0", "0.001", "16384.0", "999999.5", "1.08e+06", "1.7952410085e+09"]);
    }
}
