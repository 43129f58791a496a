//! What a session found, as an exporter needs it: the arguments, how sure they are, and what they were measured on.

use super::flags::Setting;
use super::provenance::PREFIX;
use crate::clock::utc;
use crate::engine::is_of_frontend;
use crate::journal::Status;
use crate::report::{Answer, Outcome};
use crate::space::Value;

/// Why an outcome holds nothing to export.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoWinner {
    #[error("the outcome has no best point: {0}")]
    Nothing(String),
    #[error(
        "the best point was never certified: {0}; --uncertified exports it all the same and says so in the annotations"
    )]
    NotCertified(String),
}

/// The best point of an outcome, if it may be exported; one that was never certified only if `uncertified` allows it.
pub fn winner(outcome: &Outcome, uncertified: bool) -> Result<&Answer, NoWinner> {
    let best = outcome.best.as_ref().ok_or_else(|| NoWinner::Nothing(outcome.because.clone()))?;
    let certified = outcome.status == Status::Certified && best.certified_rate.is_some();
    if certified || uncertified { Ok(best) } else { Err(NoWinner::NotCertified(outcome.because.clone())) }
}

/// The arguments that were tuned, without those of a frontend.
pub fn settings(best: &Answer) -> Vec<Setting> {
    let of_engine = best.left_out.iter().filter(|name| !is_of_frontend(name));
    let missing = of_engine.map(|name| Setting { name: name.clone(), value: Value::Text("off".into()) });
    of(best, |name| !is_of_frontend(name)).into_iter().chain(missing).collect()
}

/// What a person should do about arguments of a frontend, which is another component than the engine.
pub fn of_frontend(best: &Answer) -> Option<String> {
    let words: Vec<String> = of(best, is_of_frontend).iter().flat_map(|setting| setting.words(false)).collect();
    let words = words.join(" ");
    (!words.is_empty()).then(|| format!("the frontend was measured with {words}: give it these arguments, too"))
}

fn of(best: &Answer, meant: impl Fn(&str) -> bool) -> Vec<Setting> {
    let parameters = best.parameters.0.iter().filter(|(name, _)| meant(name));
    parameters.map(|(name, value)| Setting { name: name.clone(), value: value.clone() }).collect()
}

/// What the annotations say of an answer; `digest` is that of the outcome's file.
pub fn annotations(outcome: &Outcome, best: &Answer, digest: &str) -> Vec<(String, String)> {
    let mut said: Vec<(&str, String)> = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
    said.extend(outcome.engine_version.clone().map(|version| ("engine-version", version)));
    said.extend(outcome.model.clone().map(|model| ("model", model)));
    said.push(match (best.certified_rate, best.estimated_rate) {
        (Some(rate), _) if outcome.status == Status::Certified => {
            let sure = best.confidence.map_or(String::new(), |c| format!(", {:.0} % sure", (c * 100.0).floor()));
            ("certified-rate", format!("{rate}{sure}"))
        }
        (_, Some(rate)) => ("certified-rate", format!("none; about {rate}, NOT certified")),
        _ => ("certified-rate", "none; NOT certified".to_owned()),
    });
    if !outcome.limits.is_empty() {
        let limits: Vec<String> = outcome.limits.iter().map(|(key, at_most)| format!("{key} <= {at_most}")).collect();
        said.push(("limits", limits.join(", ")));
    }
    if let Some(finished) = outcome.finished {
        said.push(("measured", utc(finished, "%Y-%m-%d")));
    }
    if outcome.simulated {
        said.push(("simulated", "true: no measurement of a real engine".to_owned()));
    }
    said.push(("outcome", digest.to_owned()));
    said.into_iter().map(|(key, value)| (format!("{PREFIX}{key}"), value)).collect()
}
