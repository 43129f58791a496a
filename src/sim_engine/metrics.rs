//! The page of `/metrics` in Prometheus' text format, with the names, labels and order of vLLM 0.32.
//!
//! Left out are the families of Python, of the process and of FastAPI, the estimates for utilization and those of the sleep mode.

use std::fmt::Write;

use serde_json::Value;

use super::engine::Snapshot;
use super::histogram::Histogram;
use super::info::Config;

/// The page for that state.
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
    let positions = drafted.accepted_at.iter().enumerate().map(|(at, count)| (at.to_string(), *count as f64));
    let positions: Vec<(String, f64)> = positions.collect();
    let help = "Accepted tokens per draft position.";
    page.counters("spec_decode_num_accepted_tokens_per_pos", help, "position", &positions);
}

fn state(page: &mut Page, snapshot: &Snapshot) {
    let c = snapshot.counters;
    let (running, waiting) = (f64::from(c.running), f64::from(c.waiting));
    page.gauge("num_requests_running", "Number of requests in model execution batches.", running);
    page.gauge("num_requests_waiting", "Number of requests waiting to be processed.", waiting);
    page.gauges(
        "num_requests_waiting_by_reason",
        "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; 'deferred' = deferred by \
         transient constraints (LoRA budget, KV transfer, blocked status). Sum of all reasons equals vllm:num_requests_waiting.",
        "reason",
        &[("capacity", waiting), ("deferred", 0.0)],
    );
    page.gauges(
        "engine_sleep_state",
        "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; weights_offloaded = 1 means sleep \
         level 1; discard_all = 1 means sleep level 2.",
        "sleep_state",
        &[("awake", 1.0), ("weights_offloaded", 0.0), ("discard_all", 0.0)],
    );
    page.gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", c.kv_usage);
}

fn totals(page: &mut Page, config: &Config, snapshot: &Snapshot) {
    let c = snapshot.counters;
    // Without a prefix cache nothing is looked up.
    let queries = if config.prefix_caching { c.prefix_queries } else { 0 };
    let (hits, computed) = (c.prefix_hits as f64, c.prompt_tokens.saturating_sub(c.prefix_hits) as f64);
    for (name, help, value) in [
        ("prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.", queries),
        ("prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", c.prefix_hits),
        (
            "external_prefix_cache_queries",
            "External prefix cache queries from KV connector cross-instance cache sharing, in terms of number of queried tokens.",
            0,
        ),
        (
            "external_prefix_cache_hits",
            "External prefix cache hits from KV connector cross-instance cache sharing, in terms of number of cached tokens.",
            0,
        ),
        ("mm_cache_queries", "Multi-modal cache queries, in terms of number of queried items.", 0),
        ("mm_cache_hits", "Multi-modal cache hits, in terms of number of cached items.", 0),
        ("num_preemptions", "Cumulative number of preemption from the engine.", c.preemptions),
        ("prompt_tokens", "Number of prefill tokens processed.", c.prompt_tokens),
    ] {
        page.counter(name, help, value);
    }
    let sources = [("local_compute", computed), ("local_cache_hit", hits), ("external_kv_transfer", 0.0)];
    page.counters("prompt_tokens_by_source", "Number of prompt tokens by source.", "source", &sources);
    page.counter("prompt_tokens_cached", "Number of cached prompt tokens (local + external).", c.prefix_hits);
    page.counters(
        "prompt_tokens_cached_by_source",
        "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host (offloaded to DRAM), disk, p2p \
         (transferred from another vLLM instance) or external_unspecified. Counted at admission; sums to vllm:prefix_cache_hits + \
         vllm:external_prefix_cache_hits.",
        "source",
        &[("device", hits), ("host", 0.0), ("p2p", 0.0), ("disk", 0.0), ("external_unspecified", 0.0)],
    );
    page.counter("generation_tokens", "Number of generation tokens processed.", c.generation_tokens);
    // Aborted requests are counted nowhere, as in vLLM 0.32.
    let length = snapshot.completed as f64;
    let reasons = [("stop", 0.0), ("length", length), ("abort", 0.0), ("error", 0.0), ("repetition", 0.0)];
    page.counters("request_success", "Count of successfully processed requests.", "finished_reason", &reasons);
    let model = page.model.clone();
    page.family(
        "admission_rejections",
        "counter",
        "Number of admission attempts rejected by a queue limit, by reason.",
        &["max_num_queued_reqs", "max_num_queued_tokens"].map(|r| (format!("{model},reason=\"{r}\""), 0.0)),
    );
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

    fn gauges(&mut self, name: &str, help: &str, label: &str, values: &[(&str, f64)]) {
        let samples: Vec<(String, f64)> = values.iter().map(|(of, value)| (self.labels(label, of), *value)).collect();
        self.family(name, "gauge", help, &samples);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "counter", help, &[(self.labels("", ""), value as f64)]);
    }

    fn counters(&mut self, name: &str, help: &str, label: &str, values: &[(impl AsRef<str>, f64)]) {
        let labelled = |(of, value): &(_, f64)| (self.labels(label, AsRef::<str>::as_ref(of)), *value);
        let samples: Vec<(String, f64)> = values.iter().map(labelled).collect();
        self.family(name, "counter", help, &samples);
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        let _ = writeln!(self.text, "# HELP vllm:{name} {help}\n# TYPE vllm:{name} histogram");
        for (bound, count) in histogram.cumulative() {
            let labels = self.labels("le", &number(bound));
            let _ = writeln!(self.text, "vllm:{name}_bucket{{{labels}}} {}", number(count as f64));
        }
        let labels = self.labels("", "");
        let _ = writeln!(self.text, "vllm:{name}_count{{{labels}}} {}", number(histogram.count() as f64));
        let _ = writeln!(self.text, "vllm:{name}_sum{{{labels}}} {}", number(histogram.sum()));
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
    if value.is_infinite() {
        return "+Inf".to_owned();
    }
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
    use crate::sim_engine::observations::Observations;
    use crate::twin::{Counters, Drafted, Limits};

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
            Snapshot { counters: Counters::default(), completed: 60, observed: Observations::new(8192), drafted };
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

    /// What the simulated engine does not tell, by the beginnings of the names.
    const LEFT_OUT: [&str; 5] = ["python_", "process_", "http_", "vllm:estimated_", "vllm:sleep_mode_"];

    #[test]
    fn the_page_has_the_families_labels_and_bounds_of_the_real_one() {
        let real = families(include_str!("../../tests/data/vllm/metrics_after_load.txt"));
        let ours = families(&of(None));
        let shown = |name: &str| !LEFT_OUT.iter().any(|beginning| name.starts_with(beginning));
        let expected: Vec<_> = real.0.into_iter().filter(|(name, ..)| shown(name)).collect();
        // The committed page was taken over without the times of creation, one behind each counter and histogram.
        let (created, rest): (Vec<_>, Vec<_>) = ours.0.into_iter().partition(|(name, ..)| name.ends_with("_created"));
        assert_eq!(rest, expected);
        assert_eq!(created.len(), rest.iter().filter(|(_, kind, _)| kind != "gauge").count());
        for (name, labels) in real.1.iter().filter(|(name, _)| shown(name) && *name != "vllm:cache_config_info") {
            assert_eq!(ours.1.get(name), Some(labels), "{name}");
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
        let written = [0.0, 1.0, 0.001, 16384.0, 999_999.5, 1_080_000.0, 1_795_241_008.5, f64::INFINITY].map(number);
        assert_eq!(written, ["0.0", "1.0", "0.001", "16384.0", "999999.5", "1.08e+06", "1.7952410085e+09", "+Inf"]);
    }
}
