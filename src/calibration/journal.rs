//! Reads the folder of a run: every probe of an engine that served, with the configuration that was in force.

use std::collections::BTreeMap;
use std::path::Path;

use super::configuration::Configuration;
use super::evidence::{Evidence, Launched, Recorded, SourceError, request_file, unreadable, unusable};
use crate::journal::{FILE, Record, read as read_journal, verify_digest};
use crate::rig::EngineProcess;
use crate::settings::EngineKind;
use crate::space::Point;
use crate::verdict::Outcome;

/// The probes and the launches of a folder.
pub(super) fn read(folder: &Path) -> Result<Evidence, SourceError> {
    let path = folder.join(FILE);
    let text = match std::fs::read(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let why = format!(
                "there is no {FILE} in it, so it is no folder of a run\n  = hint: a CSV of requests is a source by itself"
            );
            return Err(unusable(folder, &why));
        }
        read => read.map_err(|source| unreadable(&path, source))?,
    };
    let journal = read_journal(&text).map_err(|why| unusable(&path, &why.to_string()))?;
    let mut evidence = Evidence { plan: journal.header().map(|h| Box::new(h.plan.clone())), ..Evidence::default() };
    let mut asked: BTreeMap<u32, &Point> = BTreeMap::new();
    let mut launched: BTreeMap<u32, Launched> = BTreeMap::new();
    // By trial, what it ran with, and the trial whose launch started its process.
    let mut ran: BTreeMap<u32, (Configuration, u32)> = BTreeMap::new();
    // What a resumed run measured again replaces what it was cut in.
    let mut probes: BTreeMap<(u32, u32), Recorded> = BTreeMap::new();
    let (mut void, mut broken, mut not_started, mut untold) = (0, 0, 0, 0);
    for entry in &journal.entries {
        match &entry.record {
            Record::Launching { trial, point, .. } => {
                asked.insert(*trial, point);
            }
            Record::Ready { trial, ready, .. } => {
                let point = asked.get(trial).map_or_else(Point::default, |point| (*point).clone());
                let configuration = Configuration::of_engine(&ready.effective, &point);
                let EngineProcess { altered, widest, .. } = &ready.process;
                if !altered {
                    // What its KV cache holds was left over by the limits that it was launched with.
                    let configuration =
                        widest.as_ref().map_or(configuration.clone(), |w| configuration.clone().with(&w.0));
                    let starting = ready.starting();
                    let now = Launched { configuration, starting, stopping: None };
                    evidence.launches.extend(launched.insert(*trial, now));
                }
                let process = launched.keys().next_back().copied().filter(|_| *altered).unwrap_or(*trial);
                ran.insert(*trial, (configuration, process));
                let version = ready.effective.version.as_deref().unwrap_or("of unknown version");
                evidence.engine =
                    Some(match evidence.plan.as_ref().map_or(EngineKind::Vllm, |plan| plan.engine.kind) {
                        EngineKind::Simulated => "a simulated engine".to_owned(),
                        kind => format!("{} {version}", crate::engine::dialect(kind).name()),
                    });
            }
            Record::Stopped { trial, took } => {
                if let Some(launched) = ran.get(trial).and_then(|(_, process)| launched.get_mut(process)) {
                    launched.stopping = Some(*took);
                }
            }
            Record::NotReady { .. } => not_started += 1,
            Record::Broken { .. } => broken += 1,
            Record::Probed { verdict, .. } if verdict.outcome == Outcome::Void => void += 1,
            Record::Probed { trial, probe, requests, requests_sha256, .. } => {
                let Some((configuration, _)) = ran.get(trial) else { continue };
                let file = folder.join(requests);
                let text = std::fs::read(&file).map_err(|source| unreadable(&file, source))?;
                verify_digest(&text, requests_sha256.as_deref()).map_err(|why| unusable(&file, &why))?;
                let name = format!("t{trial:03}-p{probe:02}");
                let read = request_file(&file, &name, &text)?;
                untold += read.notes.len();
                for recorded in read.probes {
                    let configuration = configuration.clone();
                    probes.insert((*trial, *probe), Recorded { configuration, ..recorded });
                }
            }
            _ => {}
        }
    }
    evidence.launches.extend(launched.into_values());
    evidence.probes = probes.into_values().collect();
    for (count, what) in [
        (void, "void probes, in which the client was too slow"),
        (broken, "probes in which the engine broke"),
        (not_started, "starts that failed"),
    ] {
        evidence.left_out.extend((count > 0).then(|| format!("{what}: {count}")));
    }
    if untold > 0 {
        let note = format!(
            "prompts are shared and cached tokens not told, so that all are replayed as computed, in probes: {untold}"
        );
        evidence.notes.push(note);
    }
    if evidence.probes.is_empty() {
        return Err(unusable(folder, "its journal holds no probe that counts"));
    }
    Ok(evidence)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::engine::diagnosis::{Cause, Consequence, Diagnosis};
    use crate::twin::Bounds;

    const CSV: &str = "due,sent,first,last,tokens_in,tokens_out,error\n0.1,0.1,0.2,0.4,200,11,\n0.3,0.3,,,200,,cut\n";

    fn probed(trial: u32, probe: u32, outcome: &str) -> Value {
        let verdict = json!({
            "outcome": outcome, "because": "", "limits": [], "binding": null, "offered": 2.0, "achieved": 2.0, "counted": 2,
            "errors": {}, "saturated": false, "complete": true, "confidence": 0.5,
        });
        let telemetry = json!({
            "peak_running": null, "peak_waiting": null, "peak_kv_usage": null, "preemptions": null, "prefix_hit_rate": null
        });
        json!({ "probed": {
            "trial": trial, "probe": probe, "ask": ask(), "verdict": verdict, "telemetry": telemetry, "took": 3.0,
            "client": { "lag_p99": 0.0, "lag_max": 0.0, "backlog_p99": 0.0, "cpu": 0.0, "starved": 0.0 },
            "requests": format!("requests/t{trial:03}-p{probe:02}.csv"),
        }})
    }

    fn ask() -> Value {
        let window = json!({ "from": 0.5, "to": 3.5 });
        json!({ "rate": 2.0, "window": window, "arrival_seed": 1, "content_seed": 2, "answer_time": 0.1 })
    }

    fn failure() -> Value {
        let diagnosis =
            Diagnosis { cause: Cause::Timeout, line: None, says: String::new(), consequence: Consequence::Retry };
        json!({ "diagnosis": diagnosis, "took": 1.0 })
    }

    fn ready(trial: u32, values: Value) -> Value {
        let effective = json!({ "values": values, "kv_cache_tokens": 2144, "version": "0.24.0" });
        json!({ "ready": { "trial": trial, "attempt": 1, "ready": {
            "took": 42.0, "effective": effective, "model": "m", "gpus": [], "burst_rate": 8.0, "answer_time": 0.1
        }}})
    }

    fn folder(records: &[Value]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let lines: Vec<String> =
            records.iter().map(|record| json!({ "at": 1.0, "record": record }).to_string()).collect();
        std::fs::write(folder.path().join(FILE), lines.join("\n") + "\n").unwrap();
        std::fs::create_dir(folder.path().join("requests")).unwrap();
        for name in ["t001-p01", "t001-p02", "t003-p01"] {
            std::fs::write(folder.path().join(format!("requests/{name}.csv")), CSV).unwrap();
        }
        folder
    }

    #[test]
    fn what_counts_has_the_configuration_in_force_and_the_rest_is_counted() {
        let point = json!({ "max-num-seqs": 128, "max-num-batched-tokens": 512 });
        let launching =
            |trial: u32| json!({ "launching": { "trial": trial, "attempt": 1, "purpose": "search", "point": point } });
        let folder = folder(&[
            launching(1),
            ready(1, json!({ "max-num-seqs": 64, "gpu-memory-utilization": 0.9, "scheduling-policy": "fcfs" })),
            probed(1, 1, "fail"),
            probed(1, 2, "void"),
            json!({ "stopped": { "trial": 1, "took": 1.5 } }),
            launching(2),
            json!({ "not-ready": { "trial": 2, "attempt": 1, "failure": failure() } }),
            launching(3),
            ready(3, json!({})),
            probed(3, 1, "pass"),
            json!({ "broken": { "trial": 3, "probe": 2, "ask": ask(), "failure": failure() } }),
        ]);
        let evidence = read(folder.path()).unwrap();
        let names: Vec<&str> = evidence.probes.iter().map(|probe| probe.name.as_str()).collect();
        assert_eq!(names, ["t001-p01", "t003-p01"]);
        let bounds = evidence.probes.iter().map(|probe| probe.configuration.resolve(None).unwrap().bounds);
        let limits = |max_num_seqs| Bounds { max_num_seqs, max_num_batched_tokens: 512, kv_tokens: Some(2144) };
        assert_eq!(bounds.collect::<Vec<_>>(), [limits(64), limits(128)], "what it said, then what it was asked for");
        assert_eq!(evidence.probes[0].requests.iter().map(|r| r.failed).collect::<Vec<_>>(), [false, true]);
        assert_eq!(evidence.left_out.iter().map(|what| &what[what.len() - 3..]).collect::<Vec<_>>(), [": 1"; 3]);
        let starts: Vec<_> = evidence.launches.iter().map(|l| (l.starting.0, l.stopping.map(|s| s.0))).collect();
        assert_eq!(starts, [(40.0, Some(1.5)), (40.0, None)], "the burst of the warm-up is no part of the start");
        assert_eq!(evidence.engine.as_deref(), Some("vLLM 0.24.0"));
    }

    #[test]
    fn a_journal_without_a_probe_and_a_missing_request_file_are_errors() {
        assert!(read(folder(&[ready(1, json!({}))]).path()).unwrap_err().to_string().contains("no probe"));
        let missing = folder(&[ready(7, json!({})), probed(7, 1, "pass")]);
        assert!(read(missing.path()).unwrap_err().to_string().contains("t007-p01.csv"));
    }
}
