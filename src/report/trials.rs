//! `trials.csv`: one row a probe, and one a launch that failed.

use std::collections::BTreeMap;

use crate::journal::{Journal, Purpose, Record};
use crate::space::Point;
use crate::verdict::paired::{Judge, Paired};

/// The table as bytes.
pub(super) fn trials_csv(journal: &Journal) -> std::io::Result<Vec<u8>> {
    let parameters: Vec<String> =
        journal.header().map_or(Vec::new(), |h| h.plan.space.parameters.iter().map(|p| p.name.clone()).collect());
    let limits: Vec<String> = journal.header().map_or(Vec::new(), |h| h.plan.slo.iter().map(|l| l.key()).collect());
    let mut csv = csv::Writer::from_writer(Vec::new());
    let mut header: Vec<String> = ["trial", "purpose"].map(str::to_owned).to_vec();
    header.extend(parameters.iter().cloned());
    header
        .extend(["probe", "rate", "outcome", "because", "offered", "achieved", "counted", "errors"].map(str::to_owned));
    header.extend(limits.iter().map(|key| format!("{key}_ms")));
    header.extend(limits.iter().flat_map(|key| PAIRED.map(|column| format!("{key}_{column}"))));
    header.extend(
        [
            "confidence",
            "kv_usage_peak",
            "preemptions",
            "prefix_hit_rate",
            "prefix_share_meant",
            "lag_p99_ms",
            "engine_seconds",
            "requests",
        ]
        .map(str::to_owned),
    );
    csv.write_record(&header)?;
    let mut points: BTreeMap<u32, (Purpose, Point)> = BTreeMap::new();
    for entry in &journal.entries {
        let (trial, tail) = match &entry.record {
            Record::Launching { trial, purpose, point, .. } => {
                points.insert(*trial, (*purpose, point.clone()));
                continue;
            }
            Record::Probed { trial, probe, ask, verdict, telemetry, cache, client, took, requests, .. } => {
                let number = |n: Option<f64>| n.map_or(String::new(), |n| format!("{n:.4}"));
                let mut row = vec![
                    probe.to_string(),
                    ask.rate.0.to_string(),
                    format!("{:?}", verdict.outcome).to_lowercase(),
                    verdict.because.clone(),
                    format!("{:.4}", verdict.offered.0),
                    format!("{:.4}", verdict.achieved.0),
                    verdict.counted.to_string(),
                    verdict.errors.values().sum::<u64>().to_string(),
                ];
                row.extend(
                    verdict.limits.iter().map(|l| l.measured.map_or(String::new(), |m| format!("{:.3}", m.millis()))),
                );
                row.extend(verdict.limits.iter().flat_map(|l| paired(l.paired.as_ref())));
                row.push(format!("{:.4}", verdict.confidence));
                row.extend([
                    number(telemetry.peak_kv_usage),
                    number(telemetry.preemptions),
                    number(cache.measured_share),
                    number(cache.expected_share),
                ]);
                row.extend([format!("{:.3}", client.lag_p99.millis()), format!("{:.3}", took.0), requests.clone()]);
                (trial, row)
            }
            Record::NotReady { trial, failure, .. } => (trial, failed("", "not-ready", failure, limits.len())),
            Record::Broken { trial, probe, ask, failure } => {
                let mut row = failed(&probe.to_string(), "broken", failure, limits.len());
                row[1] = ask.rate.0.to_string();
                (trial, row)
            }
            _ => continue,
        };
        let (purpose, point) = points.get(trial).cloned().unwrap_or((Purpose::Search, Point::default()));
        let mut row = vec![trial.to_string(), purpose.name().to_owned()];
        row.extend(parameters.iter().map(|name| point.get(name).map_or(String::new(), ToString::to_string)));
        row.extend(tail);
        csv.write_record(&row)?;
    }
    csv.into_inner().map_err(|e| e.into_error())
}

/// What a row tells of a promise's paired estimate: four columns. They are the quantile of long traffic, the standard error of its
/// logarithm, the share of the variance that the twin explains, and who decides.
const PAIRED: [&str; 4] = ["long_run_ms", "long_run_log_error", "explained", "judge"];

fn paired(estimate: Option<&Paired>) -> [String; PAIRED.len()] {
    let Some(p) = estimate else { return Default::default() };
    let judge = match p.judge {
        Judge::Paired => "paired",
        Judge::PlainCount => "count",
    };
    [format!("{:.3}", p.estimate.millis()), format!("{:.4}", p.error), format!("{:.3}", p.explained), judge.to_owned()]
}

fn failed(probe: &str, outcome: &str, failure: &crate::rig::Failure, limits: usize) -> Vec<String> {
    let mut row = vec![probe.to_owned(), String::new(), outcome.to_owned(), failure.diagnosis.says.clone()];
    row.extend(std::iter::repeat_n(String::new(), 4 + limits * (1 + PAIRED.len()) + 6));
    row.extend([format!("{:.3}", failure.took.0), String::new()]);
    row
}
