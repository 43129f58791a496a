//! Reads the folder of a run: every probe of an engine that served, with the configuration that was in force.

use std::collections::BTreeMap;
use std::path::Path;

use super::configuration::Configuration;
use super::source::{Evidence, Launched, Recorded, SourceError, request_file, unreadable, unusable};
use crate::journal::{FILE, Record, read as read_journal};
use crate::settings::EngineKind;
use crate::space::Point;
use crate::verdict::Outcome;

/// The probes and the launches of a folder.
///
/// # Errors
/// There is no journal, it is damaged, or a request file that it names cannot be read.
pub(super) fn read(folder: &Path) -> Result<Evidence, SourceError> {
    let path = folder.join(FILE);
    let text = match std::fs::read(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let why = format!(
                "there is no {FILE} in it, so it is no folder of a run\nhint: a CSV of requests is a source by itself"
            );
            return Err(unusable(folder, &why));
        }
        read => read.map_err(|source| unreadable(&path, source))?,
    };
    let journal =
        read_journal(&text).map_err(|(line, why)| unusable(&path, &format!("line {line} is damaged: {why}")))?;
    let mut evidence = Evidence { plan: journal.header().map(|h| Box::new(h.plan.clone())), ..Evidence::default() };
    let mut asked: BTreeMap<u32, &Point> = BTreeMap::new();
    let mut launched: BTreeMap<u32, Launched> = BTreeMap::new();
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
                let starting = ready.starting();
                evidence.launches.extend(launched.insert(*trial, Launched { configuration, starting, stopping: None }));
                let version = ready.effective.version.as_deref().unwrap_or("of unknown version");
                evidence.engine = Some(match evidence.plan.as_ref().map(|plan| plan.engine.kind) {
                    Some(EngineKind::Simulated) => "a simulated engine".to_owned(),
                    _ => format!("vLLM {version}"),
                });
            }
            Record::Stopped { trial, took } => {
                if let Some(launched) = launched.get_mut(trial) {
                    launched.stopping = Some(*took);
                }
            }
            Record::NotReady { .. } => not_started += 1,
            Record::Broken { .. } => broken += 1,
            Record::Probed { verdict, .. } if verdict.outcome == Outcome::Void => void += 1,
            Record::Probed { trial, probe, requests, .. } => {
                let Some(engine) = launched.get(trial) else { continue };
                let file = folder.join(requests);
                let text = std::fs::read(&file).map_err(|source| unreadable(&file, source))?;
                let name = format!("t{trial:03}-p{probe:02}");
                let read = request_file(&file, &name, &text)?;
                untold += read.notes.len();
                for recorded in read.probes {
                    let configuration = engine.configuration.clone();
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
        evidence.left_out.extend((count > 0).then(|| format!("{count} {what}")));
    }
    if untold > 0 {
        let note = format!("{untold} probes share prompts and do not tell cached tokens: all are replayed as computed");
        evidence.notes.push(note);
    }
    if evidence.probes.is_empty() {
        return Err(unusable(folder, "its journal holds no probe that counts"));
    }
    Ok(evidence)
}
