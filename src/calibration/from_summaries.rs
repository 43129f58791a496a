//! The calibration from summaries: requests like those that were sent -> a fit to the latencies that were told, and both side by side.

use serde::Serialize;
use serde_json::Value;

use super::bench_summary::Summary;
use super::calibrate::{CalibrationError, Sayings, assume, names_of, probes_of, say_assumed};
use super::compared::{Beside, Compared};
use super::configuration::{ConfigurationError, KV_TOKENS, Resolved};
use super::drawn::{Asked, DRAWS};
use super::source::{Evidence, Summarized};
use crate::order::median;
use crate::twin::{
    Aggregate, Aggregates, Bounds, History, HistoryRun, Limits, Profile, StepCosts, SummaryFit, SummaryTerms,
    fit_summaries,
};
use crate::units::{Rate, Seconds};

/// Replays of the fit; some seconds for a few summaries of some hundred requests.
const REPLAYS: u64 = 400;
/// Numbers that were measured, for each coefficient that is fitted. Mean, median and p99 of a latency tell nearly the same.
const NUMBERS_PER_COEFFICIENT: usize = 4;
/// Without these two nothing can be replayed.
const LEAST_COEFFICIENTS: usize = 2;
/// vLLM's block of the prefix cache, where no base tells another.
const BLOCK: u32 = 16;
/// The coefficients, those first that latencies under load depend on most.
const ORDER: [&str; 15] = [
    "base",
    "per_prefill_token",
    "per_decode",
    "overhead",
    "per_context_token",
    "mixed",
    "above_16",
    "above_64",
    "above_128",
    "delivery",
    "overlap",
    "per_prefill_square",
    "per_prefill_pair",
    "per_delivery",
    "ahead",
];

/// What summaries say about an engine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SummaryCalibration {
    /// The coefficients that come nearest to what was told.
    pub fit: SummaryFit,
    /// The coefficients that are not zero.
    pub coefficients: Vec<Estimated>,
    /// The profile from which the fit set out, and that tells what summaries do not.
    pub base: Option<String>,
    /// The sources that were fitted, by name.
    pub fitted: Vec<String>,
    /// The sources that were predicted alone, by name.
    pub held_out: Vec<String>,
    /// Every run, those that were fitted first.
    pub compared: Vec<Compared>,
    /// What is assumed, and what should be known of the evidence, in sentences.
    pub notes: Vec<String>,
}

/// A coefficient; summaries tell no error of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Estimated {
    /// Its name.
    pub name: &'static str,
    /// Its value: seconds, or a part of one.
    pub value: f64,
    /// Whether it was fitted, or else kept as the base has it.
    pub fitted: bool,
}

impl Estimated {
    /// Where its value comes from, in a word.
    pub fn origin(&self) -> &'static str {
        if self.fitted { "fitted" } else { "kept" }
    }
}

/// A run that was drawn anew.
struct Drawn<'a> {
    name: &'a str,
    summary: &'a Summary,
    bounds: Bounds,
    /// One for each draw.
    histories: Vec<History>,
}

/// Fits the twin to the summaries of `fitted`, and predicts these and all of `held_out`. Takes some seconds.
///
/// # Errors
/// A limit that neither a source nor the base tells, a workload that was not asked, or nothing measured.
pub fn calibrate_summaries(
    fitted: &[Evidence],
    held_out: &[Evidence],
    asked: &Asked,
    base: Option<&Profile>,
) -> Result<SummaryCalibration, CalibrationError> {
    within(fitted, held_out, asked, base, REPLAYS)
}

fn within(
    fitted: &[Evidence],
    held_out: &[Evidence],
    asked: &Asked,
    base: Option<&Profile>,
    replays: u64,
) -> Result<SummaryCalibration, CalibrationError> {
    let mut sayings = Sayings::default();
    let told = fitted.iter().chain(held_out).flat_map(|e| e.notes.iter().map(|note| (note, &e.name)));
    told.for_each(|(note, name)| sayings.add(note, name));
    let runs = draw(fitted, asked, base, &mut sayings)?;
    let others = draw(held_out, asked, base, &mut sayings)?;
    let (names, probes) = probes_of(held_out, base, &mut sayings)?;

    let numbers: usize = runs.iter().map(|run| run.summary.numbers()).sum();
    let whole = base.map_or_else(|| guess(&runs), |base| base.costs);
    let there: Vec<&str> = ORDER.into_iter().filter(|name| value(&whole, name) > 0.0).collect();
    let most = (numbers / NUMBERS_PER_COEFFICIENT).max(LEAST_COEFFICIENTS);
    let moving: Vec<&str> = there.iter().copied().take(most).collect();
    let start = if base.is_some() { whole } else { only(&whole, &moving) };
    // Another machine than the base's is quicker or slower in all; where some coefficients are kept, that would change these too.
    let starts: &[StepCosts] =
        if moving.len() == there.len() { &[start, start.slower(0.5), start.slower(2.0)] } else { &[start] };
    let histories: Vec<History> = runs.iter().flat_map(|run| run.histories.clone()).collect();
    let fit = fit_summaries(&histories, starts, &SummaryTerms { replays, drawn: true, moving: Some(&moving) })?;

    let of_runs = runs.iter().map(|run| run.compared(&fit.costs, false));
    let of_others = others.iter().map(|run| run.compared(&fit.costs, true));
    let of_probes = names.iter().zip(&probes).map(|(name, probe)| Compared::of(name, probe, &fit.costs, None));
    let coefficient = |name: &'static str| {
        let value = value(&fit.costs, name);
        (value > 0.0).then(|| Estimated { name, value, fitted: moving.contains(&name) })
    };
    let mut notes = sayings.lines();
    notes.extend(cautions(asked));
    notes.push(format!("{numbers} numbers were told, enough to fit {}; errors cannot be told", moving.join(", ")));
    Ok(SummaryCalibration {
        coefficients: ORDER.into_iter().filter_map(coefficient).collect(),
        base: base.map(|base| base.name.clone()),
        fitted: names_of(fitted),
        held_out: names_of(held_out),
        compared: of_runs.chain(of_others).chain(of_probes).collect(),
        notes,
        fit,
    })
}

/// Predicts the summaries with costs that were fitted to something else; and what must be known of that, in sentences.
///
/// # Errors
/// A limit that neither a source nor the base tells, or a workload that was not asked.
pub fn predict_summaries<'a>(
    all: impl IntoIterator<Item = &'a Evidence>,
    asked: &Asked,
    base: Option<&Profile>,
    costs: &StepCosts,
) -> Result<(Vec<Compared>, Vec<String>), CalibrationError> {
    let mut sayings = Sayings::default();
    let runs = draw(all, asked, base, &mut sayings)?;
    let mut notes = sayings.lines();
    notes.push("requests were fitted, and summaries only predicted".to_owned());
    notes.extend(cautions(asked));
    Ok((runs.iter().map(|run| run.compared(costs, true)).collect(), notes))
}

/// What a reader must know of runs that were drawn anew.
fn cautions(asked: &Asked) -> Vec<String> {
    let mut cautions = vec![
        format!(
            "a summary knows nothing of its arrivals: its requests were drawn anew, up to {DRAWS} times, and the median of these draws is \
             predicted; p99 hangs on the luck of few requests, so its difference says less than that of p50"
        ),
        "each summary is taken for a run of its own that begins with an empty prefix cache".to_owned(),
    ];
    if asked.has_texts() {
        cautions.push("what texts of a file share is not known here: all prompts are replayed as computed".to_owned());
    }
    cautions
}

fn draw<'a>(
    all: impl IntoIterator<Item = &'a Evidence>,
    asked: &Asked,
    base: Option<&Profile>,
    sayings: &mut Sayings,
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
                sayings.add("some requests failed, and are replayed as if they had been answered", name);
            }
        }
        say_assumed(&assumed, base, evidence, sayings);
    }
    Ok(runs)
}

/// The limits of the scheduler that knows every block; it needs the size of the cache.
fn limits(resolved: &Resolved, base: Option<&Profile>) -> Result<Limits, ConfigurationError> {
    let Bounds { max_num_seqs, max_num_batched_tokens, kv_tokens } = resolved.bounds;
    let kv_tokens = kv_tokens.ok_or(ConfigurationError::Untold { name: KV_TOKENS })?;
    let block_size = base.map_or(BLOCK, |base| base.memory.block_size);
    let num_blocks = u32::try_from(kv_tokens / u64::from(block_size.max(1))).unwrap_or(u32::MAX);
    Ok(Limits { max_num_seqs, max_num_batched_tokens, num_blocks, block_size })
}

impl Drawn<'_> {
    fn compared(&self, costs: &StepCosts, held_out: bool) -> Compared {
        let replayed: Vec<Aggregates> =
            self.histories.iter().flat_map(|history| history.replay(costs)).map(|run| run.aggregates).collect();
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

/// A first guess from the latencies alone: the quickest median gap is a step of few sequences, the quickest median TTFT mostly prefill, and
/// what a token takes longer in another run is shared out to the sequences that run at the same time, by Little's law.
fn guess(runs: &[Drawn<'_>]) -> StepCosts {
    let typical = |latency: &Aggregate| latency.p50.or(latency.mean);
    let least = |values: &mut dyn Iterator<Item = f64>, otherwise: f64| {
        let least = values.fold(f64::INFINITY, f64::min);
        if least.is_finite() { least } else { otherwise }
    };
    let measured = || runs.iter().map(|run| &run.summary.measured);
    let gap = least(&mut measured().filter_map(|m| typical(&m.itl).or_else(|| typical(&m.tpot))), 1e-2);
    let first = least(&mut measured().filter_map(|m| typical(&m.ttft)), 5.0 * gap);
    let tokens = least(&mut runs.iter().map(|run| run.summary.input_tokens), 1e3).max(1.0);
    let running = |run: &Drawn<'_>| {
        let rate = run.summary.rate?.0;
        Some((rate * run.summary.output_tokens * typical(&run.summary.measured.tpot)?).max(1.0))
    };
    let batch = least(&mut runs.iter().filter_map(running), 10.0).min(256.0);
    StepCosts {
        base: 0.8 * gap,
        per_prefill_token: 0.5 * first / tokens,
        per_decode: 0.1 * gap / batch,
        overhead: 0.2 * first,
        per_context_token: 0.05 * gap / batch / tokens,
        mixed: 0.1 * gap,
        above_16: 0.03 * gap,
        above_64: 0.03 * gap,
        above_128: 0.03 * gap,
        delivery: 0.1 * first,
        ..StepCosts::default()
    }
}

/// A coefficient by its name; zero for one that is left out.
fn value(costs: &StepCosts, name: &str) -> f64 {
    serde_json::to_value(costs).ok().and_then(|all| all.get(name)?.as_f64()).unwrap_or(0.0)
}

/// These coefficients, and zero for all others.
fn only(costs: &StepCosts, names: &[&str]) -> StepCosts {
    let Ok(Value::Object(mut all)) = serde_json::to_value(costs) else { return *costs };
    for (name, value) in &mut all {
        if !names.contains(&name.as_str()) {
            *value = Value::from(0.0);
        }
    }
    serde_json::from_value(Value::Object(all)).unwrap_or(*costs)
}

#[cfg(test)]
mod tests {
    use super::super::configuration::Configuration;
    use super::super::drawn::tests::{asked, run};
    use super::*;
    use crate::twin::NO_COSTS;

    const ENGINE: StepCosts =
        StepCosts { base: 8e-3, per_decode: 1e-4, per_prefill_token: 6e-5, overhead: 5e-3, ..NO_COSTS };

    fn engine() -> Profile {
        Profile { costs: ENGINE, ..Profile::named("h200-llama8b").unwrap() }
    }

    /// A file of one run of the engine, whose requests are a draw that no fit sees.
    fn evidence(name: &str, rate: Option<Rate>) -> Evidence {
        let mut summary = run(rate);
        let configuration = Configuration::parse("max-num-seqs=32,max-num-batched-tokens=512,kv-tokens=20000").unwrap();
        let limits = limits(&configuration.resolve(None).unwrap(), None).unwrap();
        let arrivals = asked().draw(&summary, Some(16)).unwrap().pop().unwrap();
        let history = History { limits, runs: vec![HistoryRun { arrivals, measured: None }] };
        summary.measured = history.replay(&ENGINE).pop().unwrap().aggregates;
        let summarized = Summarized { name: name.to_owned(), summary, configuration, refusal: String::new() };
        Evidence { name: name.to_owned(), summaries: vec![summarized], ..Evidence::default() }
    }

    #[test]
    fn an_engine_is_found_again_from_a_base_that_is_slower() {
        let files = [evidence("a.json", Some(Rate(8.0))), evidence("b.json", Some(Rate(40.0)))];
        let base = Profile { costs: ENGINE.slower(1.6), ..engine() };
        let others = [evidence("c.json", None)];
        let found = within(&files, &others, &asked(), Some(&base), 160).unwrap();
        let kinds: Vec<(bool, bool)> = found.compared.iter().map(|run| (run.summary, run.held_out)).collect();
        assert_eq!(kinds, [(true, false), (true, false), (true, true)]);
        for run in &found.compared {
            let (ttft, tpot) = (run.ttft_p50.unwrap(), run.tpot_p50.unwrap());
            assert!(ttft.log_difference().abs() < 0.2 && tpot.log_difference().abs() < 0.1, "{run:?}");
        }
        assert!(
            found.coefficients.iter().all(|c| c.fitted) && found.coefficients.len() == 4,
            "{:?}",
            found.coefficients
        );
        assert!(found.notes.iter().any(|note| note.contains("knows nothing of its arrivals")));
    }

    #[test]
    fn few_numbers_move_few_coefficients_and_the_others_are_kept() {
        let mut file = evidence("a.json", Some(Rate(20.0)));
        file.summaries[0].summary.measured.itl = Aggregate::default();
        let found = within(&[file.clone()], &[], &asked(), Some(&engine()), 4).unwrap();
        let fitted: Vec<&str> = found.coefficients.iter().filter(|c| c.fitted).map(|c| c.name).collect();
        assert_eq!(fitted, ["base", "per_prefill_token"]);
        let kept = found.coefficients.iter().find(|c| c.name == "overhead").unwrap();
        assert!((kept.value - ENGINE.overhead).abs() < 1e-9 && kept.origin() == "kept");
        let alone = within(&[file.clone()], &[], &asked(), None, 4).unwrap();
        assert_eq!(alone.coefficients.len(), 2, "without a base what is not fitted is zero");

        file.summaries[0].configuration = Configuration::parse("max-num-seqs=32,max-num-batched-tokens=512").unwrap();
        let said = within(&[file], &[], &asked(), None, 4).unwrap_err().to_string();
        assert!(said.contains(KV_TOKENS) && said.contains("a.json"), "{said}");
    }

    #[test]
    fn summaries_are_predicted_with_the_costs_of_another_fit() {
        let (compared, notes) =
            predict_summaries(&[evidence("a.json", Some(Rate(20.0)))], &asked(), None, &ENGINE).unwrap();
        let [run] = &compared[..] else { panic!("one run") };
        assert!(run.held_out && run.tpot_p50.unwrap().log_difference().abs() < 0.1, "{run:?}");
        assert!(notes.iter().any(|note| note.contains("only predicted")));
    }
}
