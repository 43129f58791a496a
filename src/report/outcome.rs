//! `outcome.json`: the answer for scripts, version 1 of a public format.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::path::Path;

use autotune_numerics::Z_95;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};

use super::arguments;
use crate::engine::variables;
use crate::journal::{Cost, Entry, Gain, Journal, MeasuredAtRate, PointResult, Purpose, Record, Status};
use crate::printable::read_json;
use crate::rig::Node;
use crate::settings::{EngineKind, Limit};
use crate::space::Point;
use crate::units::{Rate, Seconds};

/// The version of the format.
pub const VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// [`VERSION`].
    pub version: u32,
    pub status: Status,
    pub because: String,
    /// Whether the engine was the simulated one: then nothing here is a measurement of a real engine.
    pub simulated: bool,
    /// Which engine the arguments are for.
    #[serde(default)]
    pub engine: EngineKind,
    pub model: Option<String>,
    pub engine_version: Option<String>,
    pub gpus: Vec<String>,
    /// The nodes of the cluster that it was measured on; none outside of one.
    #[serde(default)]
    pub nodes: Vec<Node>,
    /// The largest latency of each promise, by its key.
    #[serde(default)]
    pub limits: BTreeMap<String, Seconds>,
    /// When the session ended, in seconds since the Unix epoch, as RFC 3339 in the file; none while it has not.
    #[serde(default, with = "crate::clock::rfc3339")]
    pub finished: Option<f64>,
    /// The longest time that the engine took from its start until it served.
    #[serde(default)]
    pub slowest_start: Option<Seconds>,
    /// The most host memory, in bytes, that the engine's processes held once they served.
    #[serde(default)]
    pub host_memory: Option<u64>,
    /// Arguments that were the same in every trial.
    #[serde(default)]
    pub fixed_arguments: Vec<String>,
    pub space_file: String,
    /// The seed of every draw.
    pub seed: u64,
    pub baseline: Option<Answer>,
    pub best: Option<Answer>,
    /// Certified rate of the best point over that of the baseline, minus one; `None` if one of them is not certified.
    pub gain: Option<f64>,
    /// The 90 % interval of the gain: that of the ratio of the two limits.
    #[serde(default)]
    pub gain_interval: Option<[f64; 2]>,
    /// What was forecast before the first launch, to stand beside the cost.
    #[serde(default)]
    pub forecast: Option<Cost>,
    /// What it cost, summed over the workers.
    pub cost: Cost,
    /// How many engines ran at the same time; `None` if a file of an earlier version does not tell.
    #[serde(default)]
    pub workers: Option<usize>,
    /// How long it ran, without the time in which it was interrupted.
    #[serde(default)]
    pub elapsed: Option<Seconds>,
    /// What did not fit, and why.
    pub left_out: Vec<String>,
    /// The engine time that is expected to be enough for what the budget left out; `None` if it left out nothing.
    #[serde(default)]
    pub enough_budget: Option<Seconds>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    pub parameters: Point,
    /// Every argument behind the engine's command, fixed ones included.
    pub arguments: Vec<String>,
    /// Variables of the engine's environment that were tuned.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Parameters that do not exist with these values: their flags and variables are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// Requests per second that the search saw kept.
    pub estimated_rate: Option<Rate>,
    /// Requests per second that hold by all probes with fresh traffic and an empty prefix cache; never above the highest that was driven.
    pub certified_rate: Option<Rate>,
    /// One-sided confidence in the certified rate.
    pub confidence: Option<f64>,
    pub binding: Option<String>,
    /// The limit in requests per second as certification knows it best; the certified rate lies below it.
    #[serde(default)]
    pub limit: Option<Rate>,
    /// The standard error of the logarithm of that limit.
    #[serde(default)]
    pub limit_error: Option<f64>,
    /// What the certifying probe nearest to the certified rate measured in its window.
    #[serde(default)]
    pub seen: Option<MeasuredAtRate>,
    /// The quantile that `seen` implies for a long run, of each promise that the paired estimate judges, by its key.
    #[serde(default)]
    pub long_run: BTreeMap<String, Seconds>,
    /// The quantile of each promise that is expected at the certified rate, by its key, from all certifying probes. Empty where none is certified, and
    /// in files of earlier versions.
    #[serde(default)]
    pub expected: BTreeMap<String, Seconds>,
    /// How many probes drove it at a rate; `None` if a file of an earlier version does not tell.
    #[serde(default)]
    pub probes: Option<u32>,
}

/// The most that Kubernetes keeps of a container's termination log, in bytes.
const LAST_WORDS: usize = 4_096;

/// What the base64 of a gzip file of an outcome begins with, where the outcome itself is too long.
const GZIP: &str = "gzip:";
/// An outcome that is unpacked to more than this is none.
const UNPACKED: u64 = 1 << 20;

/// The outcome in so few bytes that a container can leave it as its termination message. It is plain, compressed, or without what explains
/// the answer. `folder` has the whole.
pub fn last_words(outcome: &Outcome, folder: &Path) -> String {
    let plain = serde_json::to_string(outcome).unwrap_or_default();
    if plain.len() <= LAST_WORDS {
        return plain;
    }
    let whole = packed(outcome);
    if whole.len() <= LAST_WORDS {
        return whole;
    }
    let place = format!("{}/outcome.json", folder.display());
    let mut outcome = outcome.clone();
    outcome
        .left_out
        .insert(0, format!("parts of this outcome, for want of room; {place} in the worker's pod has them"));
    // The answer itself - status, points, rates - is none of it.
    let cuts: [fn(&mut Outcome); 5] = [
        |o| {
            for a in o.baseline.iter_mut().chain(&mut o.best) {
                (a.seen, a.long_run, a.expected) = (None, BTreeMap::new(), BTreeMap::new());
            }
        },
        |o| o.left_out.truncate(1),
        |o| o.baseline.iter_mut().for_each(|a| a.arguments.clear()),
        |o| o.fixed_arguments.clear(),
        |o| o.best.iter_mut().for_each(|a| a.arguments.clear()),
    ];
    for cut in cuts {
        cut(&mut outcome);
        let packed = packed(&outcome);
        if packed.len() <= LAST_WORDS {
            return packed;
        }
    }
    format!(
        "the outcome does not fit a termination message: it is in {place} of the worker's pod (--results keeps that)"
    )
}

fn packed(outcome: &Outcome) -> String {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    let done = gzip.write_all(&serde_json::to_vec(outcome).unwrap_or_default()).and_then(|()| gzip.finish());
    GZIP.to_owned() + &STANDARD.encode(done.unwrap_or_default())
}

/// The outcome that a container left as its termination message; `None` if that says something else.
pub fn of_last_words(text: &str) -> Option<Outcome> {
    let Some(packed) = text.strip_prefix(GZIP) else { return read_json(text.as_bytes()).ok() };
    let mut plain = Vec::new();
    GzDecoder::new(&STANDARD.decode(packed.trim()).ok()?[..]).take(UNPACKED).read_to_end(&mut plain).ok()?;
    read_json(&plain).ok()
}

/// Seconds of the run at each record, without what lies before another run took over.
pub(super) fn times(entries: &[Entry]) -> Vec<f64> {
    let (mut now, mut before) = (0.0, None);
    let time = |entry: &Entry| {
        if let Some(before) = before.filter(|_| !matches!(entry.record, Record::Resumed { .. })) {
            now += f64::max(entry.at - before, 0.0);
        }
        before = Some(entry.at);
        now
    };
    entries.iter().map(time).collect()
}

/// The time of the whole run; none of a single record.
fn elapsed(entries: &[Entry]) -> Option<Seconds> {
    times(entries).last().filter(|_| entries.len() > 1).map(|at| Seconds(*at))
}

impl Answer {
    /// The limit with its 90 % interval.
    pub(super) fn limit_interval(&self) -> Option<(Rate, Rate, Rate)> {
        let (limit, width) = (self.limit?, (Z_95 * self.limit_error?).exp());
        Some((limit, limit * (1.0 / width), limit * width))
    }
}

/// How many probes drove a point at a rate; a burst has none. What the defaults left to the engine, it tells when it is ready.
fn probes(journal: &Journal, point: &Point) -> u32 {
    let space = journal.header().map(|header| &header.plan.space);
    let (mut trials, mut count) = (BTreeMap::new(), 0);
    for entry in &journal.entries {
        match &entry.record {
            Record::Launching { trial, point, purpose, .. } => {
                trials.insert(*trial, (point.clone(), *purpose));
            }
            Record::Ready { trial, ready, .. } => {
                if let Some((launched, Purpose::Baseline)) = trials.get_mut(trial)
                    && let Some(space) = space
                {
                    *launched = ready.effective.complete(space, launched.clone());
                }
            }
            Record::Probed { trial, ask, .. } if !ask.is_burst() => {
                count += u32::from(trials.get(trial).is_some_and(|(launched, _)| launched == point));
            }
            _ => {}
        }
    }
    count
}

/// The quantile of each promise at the certified rate, by straight lines between the logarithms that certification left.
fn expected(placed: &PointResult, limits: &[Limit]) -> BTreeMap<String, Seconds> {
    let Some(rate) = placed.certified_rate else { return BTreeMap::new() };
    let at = |limit: &Limit| {
        let key = limit.key();
        let margins = &placed.expected.iter().find(|quantile| quantile.key == key)?.margins;
        let after = margins.partition_point(|(other, ..)| other.0 < rate.0).max(1);
        let ((a, at_a, _), (b, at_b, _)) = (margins.get(after - 1)?, margins.get(after)?);
        let share = (rate.0 / a.0).ln() / (b.0 / a.0).ln();
        Some((key, limit.at_most * (at_a + (at_b - at_a) * share).exp()))
    };
    limits.iter().filter_map(at).collect()
}

/// What the latest fit makes of the probe that was `seen`: the quantile in a long run of each promise that the paired estimate judges.
fn long_run(entries: &[Entry], seen: &MeasuredAtRate) -> BTreeMap<String, Seconds> {
    let verdicts = entries.iter().rev().flat_map(|entry| match &entry.record {
        Record::Probed { verdict, .. } => vec![&**verdict],
        Record::Fitted { verdicts, .. } => verdicts.values().collect(),
        _ => Vec::new(),
    });
    let mut same = verdicts.filter(|verdict| MeasuredAtRate::of(seen.rate, verdict) == *seen);
    let limits = same.next().into_iter().flat_map(|verdict| &verdict.limits);
    limits.filter_map(|limit| Some((limit.key.clone(), limit.decided_by_pair()?.estimate))).collect()
}

/// What a journal says of the answer; an unfinished one gives the best so far.
pub fn outcome(journal: &Journal) -> Outcome {
    let header = journal.header();
    let ready_ones = || {
        journal.entries.iter().filter_map(|e| match &e.record {
            Record::Ready { ready, .. } => Some(&**ready),
            _ => None,
        })
    };
    let ready = ready_ones().next();
    let probed = |placed: &PointResult| probes(journal, &placed.point);
    let answer = |placed: &PointResult| Answer {
        parameters: placed.point.clone(),
        arguments: arguments(journal, &placed.point),
        environment: variables(&placed.point).collect(),
        left_out: header.map_or_else(Vec::new, |h| h.plan.space.missing_at(&placed.point)),
        estimated_rate: placed.estimated_rate,
        certified_rate: placed.certified_rate,
        confidence: placed.confidence,
        // What a burst breaks says nothing of a rate.
        binding: placed.binding.clone().filter(|_| probed(placed) > 0),
        limit: placed.limit,
        limit_error: placed.limit_error,
        seen: placed.seen.clone(),
        long_run: placed.seen.as_ref().map_or_else(BTreeMap::new, |seen| long_run(&journal.entries, seen)),
        expected: header.map_or_else(BTreeMap::new, |h| expected(placed, &h.plan.slo)),
        probes: Some(probed(placed)),
    };
    let conclusion = journal.conclusion();
    let baseline = conclusion.and_then(|c| c.baseline.as_ref()).map(answer);
    let best = conclusion.and_then(|c| c.best.as_ref()).map(answer);
    let certified = |a: &Option<Answer>| a.as_ref().and_then(|a| a.certified_rate);
    Outcome {
        version: VERSION,
        status: conclusion.map_or(Status::Interrupted, |c| c.status),
        because: conclusion.map_or("stopped before its end".into(), |c| c.because.clone()),
        simulated: header.is_some_and(|h| h.plan.engine.kind.is_simulated()),
        engine: header.map_or(EngineKind::Vllm, |h| h.plan.engine.kind),
        model: ready.map(|r| r.model.clone()),
        engine_version: ready.and_then(|r| r.effective.version.clone()),
        gpus: ready.map_or(Vec::new(), |r| r.gpus.clone()),
        nodes: ready_ones().filter_map(|r| r.node.clone()).collect::<BTreeSet<_>>().into_iter().collect(),
        limits: header.map_or_else(BTreeMap::new, |h| h.plan.slo.iter().map(|l| (l.key(), l.at_most)).collect()),
        finished: conclusion.and(journal.entries.last()).map(|e| e.at),
        slowest_start: ready_ones().map(|r| r.starting()).max_by(|a, b| a.0.total_cmp(&b.0)),
        host_memory: ready_ones().filter_map(|r| r.host_memory).max(),
        fixed_arguments: header.map_or(Vec::new(), |h| h.plan.engine.args.clone()),
        space_file: header.map_or(String::new(), |h| h.space_file.clone()),
        seed: header.map_or(0, |h| h.seed),
        gain: certified(&baseline).zip(certified(&best)).map(|(b, w)| w.0 / b.0 - 1.0),
        gain_interval: conclusion
            .and_then(|c| Gain::of(c.best.as_ref()?, c.baseline.as_ref()?))
            .map(|gain| [gain.from, gain.to]),
        forecast: conclusion.and_then(|c| c.forecast),
        baseline,
        best,
        cost: journal.cost(),
        workers: header.map(|h| h.workers),
        elapsed: elapsed(&journal.entries),
        left_out: conclusion.map_or(Vec::new(), |c| c.left_out.clone()),
        enough_budget: conclusion.and_then(|c| c.enough_budget),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::sha256;
    use crate::journal::read;
    use crate::report::pretty_json;

    /// The file has whole seconds.
    fn stored() -> Outcome {
        let stored: Outcome = serde_json::from_str(include_str!("../../tests/data/outcome.json")).unwrap();
        Outcome { finished: stored.finished.map(f64::floor), ..stored }
    }

    #[test]
    fn fuzz_outcomes_of_damaged_journals() {
        let whole = include_str!("../../tests/data/h200-turns/journal.jsonl");
        let lines: Vec<&str> = whole.lines().collect();
        let valid = lines[1..].chunks(4).map(|some| format!("{}\n{}\n", lines[0], some.join("\n")));
        autotune_fuzz::fuzz(8, valid, |input, _| {
            if let Ok(journal) = read(input) {
                outcome(&journal);
            }
        });
    }

    /// The defaults of this session were left to the engine, and another point is the best.
    #[test]
    fn the_probes_of_a_point_are_its_own() {
        let journal = read(include_bytes!("../../results/h200-8b-gain-eighth/journal.jsonl")).unwrap();
        let Outcome { best, baseline, .. } = outcome(&journal);
        assert_eq!((best.unwrap().probes, baseline.unwrap().probes), (Some(7), Some(3)));
    }

    #[test]
    fn an_outcome_comes_through_a_termination_message() {
        let folder = Path::new("/autotune/results/r");
        let through = |outcome: &Outcome| {
            let words = last_words(outcome, folder);
            assert!(words.len() <= 4_096, "{}", words.len());
            (words.starts_with('{'), of_last_words(&words))
        };
        let mut outcome = stored();
        assert_eq!(through(&outcome), (true, Some(outcome.clone())), "a short one is left as it is");
        // Other machines, other words: nothing repeats but the keys.
        let noise = |seed: usize| sha256(&seed.to_le_bytes());
        outcome.left_out = (0..120).map(|i| format!("a point of {} for want of a budget", &noise(i)[..12])).collect();
        assert_eq!(through(&outcome), (false, Some(outcome.clone())), "a longer one is compressed, and whole");
        let limits = (0..40).map(|i| (format!("{}_p99", &noise(i)[..8]), Seconds(i as f64))).collect();
        let long = Outcome {
            limits,
            fixed_arguments: (0..100).map(noise).collect(),
            left_out: (100..200).map(noise).collect(),
            ..outcome
        };
        let (_, cut) = through(&long);
        let cut = cut.unwrap();
        let parameters = |o: &Outcome| o.best.as_ref().map(|best| (best.parameters.clone(), best.certified_rate));
        assert_eq!((cut.status, parameters(&cut), &cut.limits), (long.status, parameters(&long), &long.limits));
        assert!(cut.left_out[0].contains("/autotune/results/r/outcome.json"), "{:?}", cut.left_out);
        let endless = Outcome { because: (0..200).map(noise).collect(), ..long };
        let words = last_words(&endless, folder);
        assert!(
            words.contains("the outcome does not fit a termination message: it is in /autotune/results/r/outcome.json")
                && of_last_words(&words).is_none(),
            "{words}"
        );
    }

    #[test]
    fn a_message_that_unpacks_without_end_is_no_outcome() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        let text = format!("{{\"because\": \"{}\"}}", " ".repeat(4 << 20));
        gzip.write_all(text.as_bytes()).unwrap();
        let words = GZIP.to_owned() + &STANDARD.encode(gzip.finish().unwrap());
        assert!(of_last_words(&words).is_none() && of_last_words("gzip:%%%").is_none());
    }

    #[test]
    fn every_outcome_is_as_its_schema_says_and_every_key_is_in_it() {
        let schema: serde_json::Value = serde_json::from_str(crate::report::OUTCOME_SCHEMA).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut outcomes: Vec<serde_json::Value> = ["results/h200-8b", "results/h200-70b"]
            .map(|name| {
                let journal = read(&std::fs::read(root.join(name).join("journal.jsonl")).unwrap()).unwrap();
                for records in 1..journal.entries.len() {
                    let cut = Journal { entries: journal.entries[..records].to_vec(), ..Journal::default() };
                    assert!(validator.is_valid(&serde_json::to_value(outcome(&cut)).unwrap()), "{name}: {records}");
                }
                serde_json::to_value(outcome(&journal)).unwrap()
            })
            .to_vec();
        for file in ["tests/data/outcome.json", "results/h200-8b/outcome.json", "results/h200-70b/outcome.json"] {
            outcomes.push(serde_json::from_slice(&std::fs::read(root.join(file)).unwrap()).unwrap());
        }
        for outcome in &outcomes {
            let faults: Vec<String> =
                validator.iter_errors(outcome).map(|e| format!("{}: {e}", e.instance_path())).collect();
            assert_eq!(faults, Vec::<String>::new());
        }
        let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
        let written = |properties: &serde_json::Value| {
            let still = properties.as_object().unwrap().iter().filter(|(_, key)| key["deprecated"] != true);
            still.map(|(name, _)| name.clone()).collect::<BTreeSet<_>>()
        };
        assert_eq!(keys(&outcomes[0]), written(&schema["properties"]));
        assert_eq!(keys(&outcomes[0]["best"]), written(&schema["$defs"]["answer"]["properties"]));
        assert!(outcomes[0]["finished"].as_str().unwrap().ends_with('Z'), "{}", outcomes[0]["finished"]);
    }

    #[test]
    fn a_time_is_read_as_a_text_and_as_a_number() {
        let stored = stored();
        let text = pretty_json(&stored);
        assert!(text.contains("\"finished\": \"2026-11-22T01:26:10Z\""), "{text}");
        assert_eq!(serde_json::from_str::<Outcome>(&text).unwrap(), stored);
        assert!(serde_json::from_str::<Outcome>(&text.replace("2026-11-22T", "yesterday ")).is_err());
    }
}
