//! The runs that only summaries are left of, under their limits: drawn anew, replayed, and compared with what was told.

use super::bench_summary::Summary;
use super::calibrate::CalibrationError;
use super::compared::{Beside, Compared};
use super::configuration::{ConfigurationError, KV_TOKENS, Resolved};
use super::drawn::Asked;
use super::source::{Evidence, Summarized};
use super::warnings::{Warnings, assume, say_assumed};
use crate::quantiles::median;
use crate::twin::{Aggregate, Aggregates, Bounds, DEFAULT_BLOCK, History, HistoryRun, Limits, Profile, StepCosts};
use crate::units::{Rate, Seconds};

/// A run that was drawn anew.
pub(super) struct Drawn<'a> {
    name: &'a str,
    /// What is told of it.
    pub(super) summary: &'a Summary,
    bounds: Bounds,
    pub(super) histories: Vec<History>,
}

/// Draws all runs that only summaries are left of; what had to be assumed is noted.
pub(super) fn draw<'a>(
    all: impl IntoIterator<Item = &'a Evidence>,
    asked: &Asked,
    base: Option<&Profile>,
    warnings: &mut Warnings,
) -> Result<Vec<Drawn<'a>>, CalibrationError> {
    let mut runs = Vec::new();
    for evidence in all {
        let mut assumed = Vec::new();
        for Summarized { name, summary, configuration, .. } in &evidence.summaries {
            let wrong = |source| CalibrationError::Configuration { probe: name.clone(), source };
            let resolved = configuration.resolve(base).map_err(wrong)?;
            assume(&resolved, &mut assumed);
            let limits = limits(&resolved, base).map_err(wrong)?;
            let block = resolved.prefix_caching.then_some(limits.block_size);
            let draws = asked.draw(summary, block);
            let draws = draws.map_err(|source| CalibrationError::Draw { run: name.clone(), source })?;
            let run = |arrivals| HistoryRun { arrivals, measured: Some(summary.measured) };
            let histories = draws.into_iter().map(|arrivals| History { limits, runs: vec![run(arrivals)] }).collect();
            runs.push(Drawn { name, summary, bounds: resolved.bounds, histories });
            if summary.completed < summary.prompts {
                warnings.add("some requests failed, and are replayed as if they had been answered", name);
            }
        }
        say_assumed(&assumed, base, evidence, warnings);
    }
    Ok(runs)
}

/// The limits of the scheduler that knows every block; it needs the size of the cache.
pub(super) fn limits(resolved: &Resolved, base: Option<&Profile>) -> Result<Limits, ConfigurationError> {
    let block_size = base.map_or(DEFAULT_BLOCK, |base| base.memory.block_size);
    resolved.bounds.limits(block_size).ok_or(ConfigurationError::Untold { name: KV_TOKENS })
}

impl Drawn<'_> {
    /// What the twin says of each draw.
    fn replayed(&self, costs: &StepCosts) -> Vec<Aggregates> {
        self.histories.iter().flat_map(|history| history.replay(costs)).map(|run| run.aggregates).collect()
    }

    /// The latencies that were told beside the medians of the draws.
    pub(super) fn compared(&self, costs: &StepCosts, held_out: bool) -> Compared {
        let replayed = self.replayed(costs);
        let beside = |latency: fn(&Aggregates) -> Aggregate, at: fn(&Aggregate) -> Option<f64>| {
            let measured = Seconds(at(&latency(&self.summary.measured))?);
            let predicted = median(replayed.iter().filter_map(|one| at(&latency(one)))).map(Seconds)?;
            Some(Beside { measured, predicted })
        };
        let Summary { rate, prompts, completed, .. } = *self.summary;
        Compared {
            name: self.name.to_owned(),
            held_out,
            summary: true,
            // As many requests at once have in a nanosecond.
            rate: rate.unwrap_or(Rate(f64::from(prompts) * 1e9)),
            requests: prompts as usize,
            failures: prompts.saturating_sub(completed) as usize,
            bounds: self.bounds,
            ttft_p50: beside(|a| a.ttft, |a| a.p50),
            ttft_p99: beside(|a| a.ttft, |a| a.p99),
            tpot_p50: beside(|a| a.tpot, |a| a.p50),
            tpot_p99: beside(|a| a.tpot, |a| a.p99),
            slower: None,
        }
    }
}

/// How far the draws of a run are apart at most, which is how far luck alone may take a run from its prediction.
pub(super) fn luck<'a, 'b: 'a>(runs: impl IntoIterator<Item = &'a Drawn<'b>>, costs: &StepCosts) -> Option<String> {
    let replayed: Vec<Vec<Aggregates>> = runs.into_iter().map(|run| run.replayed(costs)).collect();
    let apart = |latency: fn(&Aggregates) -> Option<f64>| {
        let of_run = |draws: &Vec<Aggregates>| {
            let logs: Vec<f64> = draws.iter().filter_map(latency).map(f64::ln).filter(|log| log.is_finite()).collect();
            let (least, most) = (logs.iter().copied().reduce(f64::min)?, logs.iter().copied().reduce(f64::max)?);
            Some((most - least) * 100.0)
        };
        replayed.iter().filter_map(of_run).fold(0.0, f64::max)
    };
    let most = replayed.iter().map(Vec::len).max()?;
    let (ttft, tpot) = ([apart(|a| a.ttft.p50), apart(|a| a.ttft.p99)], [apart(|a| a.tpot.p50), apart(|a| a.tpot.p99)]);
    (most > 1).then(|| {
        format!(
            "the draws of a run are apart by up to {:.0} % in TTFT p50, {:.0} % in its p99, {:.0} % in TPOT p50, {:.0} % in its p99",
            ttft[0], ttft[1], tpot[0], tpot[1]
        )
    })
}
