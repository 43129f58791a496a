//! The calibration itself: evidence -> a fit, the prediction of every probe beside its measurement, and what else the evidence says.

use std::collections::BTreeSet;

use serde::Serialize;

use super::compared::Compared;
use super::configuration::ConfigurationError;
use super::evidence::{Evidence, Launched, Recorded};
use super::memory::CacheSize;
use super::warnings::{Warnings, assume, say_assumed};
use crate::quantiles::median;
use crate::twin::{Effort, Fit, FitError, Probe, Profile, Residuals, fit};
use crate::units::Seconds;

/// Fewer probes have no spread from probe to probe.
const LEAST_PROBES_FOR_SPREAD: usize = 3;
/// Below this correlation of measured and replayed latencies the arrivals explain less than half of what differs between requests.
const LEAST_CORRELATION: f64 = 0.7;
/// The fit resolves no smaller spread: with few probes its coefficients follow their differences.
const LEAST_SPREAD: f64 = 1e-3;

/// What measured probes say about an engine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// The twin's coefficients, and what they leave unexplained.
    pub fit: Fit,
    /// The profile that tells what the evidence does not.
    pub base: Option<String>,
    /// The sources that were fitted, by name.
    pub fitted: Vec<String>,
    /// The sources that were predicted and not fitted, by name.
    pub held_out: Vec<String>,
    /// The engines that the sources tell, each once, sorted.
    pub engines: Vec<String>,
    /// Every probe, those that were fitted first.
    pub compared: Vec<Compared>,
    /// Every KV cache that was logged, each configuration once.
    pub memory: Vec<CacheSize>,
    /// What a start and a stop take together, the median.
    pub start: Option<Start>,
    /// The standard deviation from probe to probe of the logarithm of the engine's speed. `None` where probes are too
    /// few or it is not more than the fit resolves.
    pub run_to_run: Option<f64>,
    /// What the sources hold and the fit leaves out, in words.
    pub left_out: Vec<String>,
    /// What is assumed, and what should be known of the evidence, in sentences.
    pub notes: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Start {
    /// From the start of the process until it serves, and its stop.
    pub seconds: Seconds,
    /// Whether these were not the first starts of their runs, which find cold caches.
    pub warm: bool,
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CalibrationError {
    #[error("{probe}: {source}")]
    Configuration { probe: String, source: ConfigurationError },
    #[error(
        "{0}\n  = hint: give more probes, or longer ones; two rates of some hundred requests each are a good start"
    )]
    Fit(#[from] FitError),
}

/// Fits the twin to the probes of `fitted`, and predicts these and those of `held_out`. Takes some seconds.
pub fn calibrate(
    fitted: &[Evidence],
    held_out: &[Evidence],
    base: Option<&Profile>,
) -> Result<Calibration, CalibrationError> {
    let all = || fitted.iter().chain(held_out);
    let mut warnings = Warnings::default();
    all().for_each(|evidence| evidence.notes.iter().for_each(|note| warnings.add(note, &evidence.name)));
    let (names, probes) = probes_of(fitted, base, &mut warnings)?;
    let (held_out_names, held_out_probes) = probes_of(held_out, base, &mut warnings)?;
    let fit = fit(&probes, Effort::FULL)?;
    let slower = fit.residuals.probes.iter().map(|drift| Some(drift.slower));
    let of_fitted = names.iter().zip(&probes).zip(slower);
    let of_held_out = held_out_names.iter().zip(&held_out_probes).zip(std::iter::repeat(None));
    let compare = |((name, probe), slower): ((&String, &Probe), _)| Compared::of(name, probe, &fit.costs, slower);
    let compared = of_fitted.chain(of_held_out).map(compare).collect();
    let engines: BTreeSet<&String> = all().filter_map(|evidence| evidence.engine.as_ref()).collect();
    let engines: Vec<String> = engines.into_iter().cloned().collect();
    let spread = (probes.len() >= LEAST_PROBES_FOR_SPREAD).then(|| fit.run_to_run().0);
    let mut notes = warnings.lines();
    notes.extend(cautions(&fit, &engines, spread).into_iter().map(str::to_owned));
    let mut left_out = Warnings::default();
    all().for_each(|evidence| evidence.left_out.iter().for_each(|what| left_out.add(what, &evidence.name)));
    Ok(Calibration {
        base: base.map(|base| base.name.clone()),
        fitted: names_of(fitted),
        held_out: names_of(held_out),
        engines,
        compared,
        memory: base.map_or(Ok(Vec::new()), |base| memory(fitted, base))?,
        start: start(fitted),
        run_to_run: spread.filter(|spread| *spread >= LEAST_SPREAD),
        left_out: left_out.lines(),
        notes,
        fit,
    })
}

fn names_of(all: &[Evidence]) -> Vec<String> {
    all.iter().map(|evidence| evidence.name.clone()).collect()
}

/// What a reader of the fit must know before trusting it.
fn cautions(fit: &Fit, engines: &[String], spread: Option<f64>) -> Vec<&'static str> {
    let Residuals { ttft_correlation, tpot_correlation, probes, .. } = &fit.residuals;
    [
        (
            probes.len() == 1,
            "one probe alone: how the engine differs from run to run, and what only another load shows, stays unknown",
        ),
        (
            spread.is_some_and(|spread| spread < LEAST_SPREAD),
            "the engine's speed differs between the probes by less than the fit resolves",
        ),
        (
            ttft_correlation.min(*tpot_correlation) < LEAST_CORRELATION,
            "the twin explains little of these latencies: trust its predictions no further than the table",
        ),
        (engines.len() > 1, "the sources are of several engines, and one fit cannot be all of them"),
    ]
    .into_iter()
    .filter_map(|(holds, caution)| holds.then_some(caution))
    .collect()
}

/// The names and the probes of this evidence; what had to be assumed is noted.
fn probes_of(
    all: &[Evidence],
    base: Option<&Profile>,
    warnings: &mut Warnings,
) -> Result<(Vec<String>, Vec<Probe>), CalibrationError> {
    let (mut names, mut probes) = (Vec::new(), Vec::new());
    for evidence in all {
        let mut assumed = Vec::new();
        for Recorded { name, requests, configuration } in &evidence.probes {
            let wrong = |source| CalibrationError::Configuration { probe: name.clone(), source };
            let resolved = configuration.resolve(base).map_err(wrong)?;
            assume(&resolved, &mut assumed);
            let several_folders = all.len() > 1 && !name.starts_with(&evidence.name);
            names.push(if several_folders { format!("{}/{name}", evidence.name) } else { name.clone() });
            probes.push(Probe::new(requests.clone(), resolved.bounds));
        }
        say_assumed(&assumed, base, evidence, warnings);
    }
    Ok((names, probes))
}

/// Each configuration of the launches once, with what the base predicts for it.
fn memory(all: &[Evidence], base: &Profile) -> Result<Vec<CacheSize>, CalibrationError> {
    let mut sizes: Vec<CacheSize> = Vec::new();
    for Launched { configuration, .. } in all.iter().flat_map(|evidence| &evidence.launches) {
        let wrong = |source| CalibrationError::Configuration { probe: "a launch".to_owned(), source };
        let size = CacheSize::of(configuration, base).map_err(wrong)?;
        sizes.extend(size.filter(|size| !sizes.contains(size)));
    }
    Ok(sizes)
}

/// The median start; a run's first finds cold caches, and counts only where there is no other.
fn start(all: &[Evidence]) -> Option<Start> {
    let warm: Vec<&Launched> = all.iter().flat_map(|evidence| evidence.launches.iter().skip(1)).collect();
    let cold = || all.iter().flat_map(|evidence| &evidence.launches).collect();
    let (launches, warm): (Vec<&Launched>, bool) = if warm.is_empty() { (cold(), false) } else { (warm, true) };
    let starting = median(launches.iter().map(|launch| launch.starting.0))?;
    let stopping = median(launches.iter().filter_map(|launch| launch.stopping).map(|took| took.0)).unwrap_or(0.0);
    Some(Start { seconds: Seconds(starting + stopping), warm })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration::{Configuration, KV_TOKENS};
    use crate::repeatable::uniform;
    use crate::twin::{Bounds, NO_COSTS, Sent, StepCosts};

    const BOUNDS: Bounds = Bounds { max_num_seqs: 64, max_num_batched_tokens: 2048, kv_tokens: None };
    const ENGINE: StepCosts =
        StepCosts { base: 5e-3, per_decode: 2e-5, per_prefill_token: 3e-5, overhead: 3e-3, ..NO_COSTS };

    fn evidence(name: &str, requests: u32, rate: f64) -> Evidence {
        let mut uniform = uniform(11);
        let mut at = 0.0;
        let mut one = |_| {
            at -= uniform().ln() / rate;
            Sent {
                at,
                prompt: 50 + (uniform() * 800.0) as u32,
                output: 4 + (uniform() * 60.0) as u32,
                ..Sent::default()
            }
        };
        let sent: Vec<Sent> = (0..requests).map(&mut one).collect();
        let recorded = Recorded {
            name: name.to_owned(),
            requests: Probe::replayed(&ENGINE, BOUNDS, &sent).requests().to_vec(),
            configuration: Configuration::parse("max-num-seqs=64,max-num-batched-tokens=2048").unwrap(),
        };
        Evidence { name: name.to_owned(), probes: vec![recorded], ..Evidence::default() }
    }

    #[test]
    fn an_engine_is_found_again_and_what_was_held_out_is_predicted() {
        let held_out = [evidence("c.csv", 60, 20.0)];
        let found = calibrate(&[evidence("a.csv", 120, 10.0), evidence("b.csv", 120, 25.0)], &held_out, None).unwrap();
        let held: Vec<bool> = found.compared.iter().map(|probe| probe.held_out).collect();
        assert_eq!(held, [false, false, true]);
        for probe in &found.compared {
            let (ttft, tpot) = (probe.ttft_p50.unwrap(), probe.tpot_p50.unwrap());
            assert!(ttft.log_difference().abs() < 0.1 && tpot.log_difference().abs() < 0.1, "{probe:?}");
        }
        assert_eq!(found.fit.residuals.answers, 240, "what is held out is not fitted");
        assert_eq!((found.run_to_run, found.start, found.memory.len()), (None, None, 0));
        assert!(found.notes.iter().any(|note| note.contains("a.csv") && note.contains(KV_TOKENS)), "{:?}", found.notes);
    }

    #[test]
    fn too_little_is_said_in_words() {
        let few = calibrate(&[evidence("a.csv", 60, 10.0)], &[], None).unwrap_err().to_string();
        assert!(few.contains("60 whole answers") && few.contains("\n  = hint: "), "{few}");
        let mut untold = evidence("a.csv", 60, 10.0);
        untold.probes[0].configuration = Configuration::default();
        let untold = calibrate(&[untold], &[], None).unwrap_err().to_string();
        assert!(untold.contains("a.csv") && untold.contains("max-num-seqs"), "{untold}");
    }

    #[test]
    fn a_start_is_the_median_of_the_warm_ones_with_its_stop() {
        let launched = |starting| Launched {
            configuration: Configuration::default(),
            starting: Seconds(starting),
            stopping: Some(Seconds(2.0)),
        };
        let run = |starts: &[f64]| Evidence {
            launches: starts.iter().copied().map(launched).collect(),
            ..Evidence::default()
        };
        assert_eq!(start(&[run(&[90.0, 40.0, 41.0, 42.0])]), Some(Start { seconds: Seconds(43.0), warm: true }));
        assert_eq!(start(&[run(&[90.0])]), Some(Start { seconds: Seconds(92.0), warm: false }));
        assert_eq!(start(&[run(&[])]), None);
    }
}
