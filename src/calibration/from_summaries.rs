//! The calibration from summaries: requests like those that were sent -> a fit to the latencies that were told, and both side by side.

use serde::Serialize;

use super::bench_summary::Summary;
use super::calibrate::{CalibrationError, names_of, probes_of};
use super::compared::Compared;
use super::drawn::{Asked, DRAWS};
use super::first_guess::{ORDER, Outset, outset, value};
use super::redrawn::{draw, luck};
use super::source::Evidence;
use super::warnings::Warnings;
use crate::twin::{History, Profile, StepCosts, SummaryFit, SummaryTerms, fit_summaries};

/// Replays of the fit; some seconds for a few summaries of some hundred requests.
const REPLAYS: u64 = 400;
/// A median that is farther off, as a logarithm, tells that coefficients which were kept or a workload are those of something else.
const FAR: f64 = 0.2;

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
    let mut warnings = Warnings::default();
    let told = fitted.iter().chain(held_out).flat_map(|e| e.notes.iter().map(|note| (note, &e.name)));
    told.for_each(|(note, name)| warnings.add(note, name));
    let runs = draw(fitted, asked, base, &mut warnings)?;
    let others = draw(held_out, asked, base, &mut warnings)?;
    let (names, probes) = probes_of(held_out, base, &mut warnings)?;

    let summaries: Vec<&Summary> = runs.iter().map(|run| run.summary).collect();
    let Outset { starts, moving, numbers } = outset(&summaries, base.map(|base| &base.costs));
    let histories: Vec<History> = runs.iter().flat_map(|run| run.histories.clone()).collect();
    let fit = fit_summaries(&histories, &starts, &SummaryTerms { replays, drawn: true, moving: Some(&moving) })?;

    let of_runs = runs.iter().map(|run| run.compared(&fit.costs, false));
    let of_others = others.iter().map(|run| run.compared(&fit.costs, true));
    let of_probes = names.iter().zip(&probes).map(|(name, probe)| Compared::of(name, probe, &fit.costs, None));
    let coefficient = |name: &'static str| {
        let value = value(&fit.costs, name);
        (value > 0.0).then(|| Estimated { name, value, fitted: moving.contains(&name) })
    };
    let mut notes = warnings.lines();
    notes.extend(cautions(asked));
    notes.extend(luck(runs.iter().chain(&others), &fit.costs));
    notes.push(format!("{numbers} numbers were told, enough to fit {}; errors cannot be told", moving.join(", ")));
    let compared: Vec<Compared> = of_runs.chain(of_others).chain(of_probes).collect();
    notes.extend(far_off(&compared));
    Ok(SummaryCalibration {
        coefficients: ORDER.into_iter().filter_map(coefficient).collect(),
        base: base.map(|base| base.name.clone()),
        fitted: names_of(fitted),
        held_out: names_of(held_out),
        compared,
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
    let mut warnings = Warnings::default();
    let runs = draw(all, asked, base, &mut warnings)?;
    let mut notes = warnings.lines();
    notes.push("requests were fitted, and summaries only predicted".to_owned());
    notes.extend(cautions(asked));
    notes.extend(luck(&runs, costs));
    Ok((runs.iter().map(|run| run.compared(costs, true)).collect(), notes))
}

/// The caution that these runs were not reached by their own fit.
fn far_off(compared: &[Compared]) -> Option<String> {
    let fitted = compared.iter().filter(|run| !run.held_out);
    let far =
        fitted.flat_map(|run| [run.ttft_p50, run.tpot_p50]).flatten().any(|pair| pair.log_difference().abs() > FAR);
    far.then(|| {
        "a p50 that was fitted is far off: the base is too different an engine (without --base the fit sets out from a guess), or the \
         workload, the limits or an empty cache are not what was there"
            .to_owned()
    })
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

#[cfg(test)]
mod tests {
    use super::super::configuration::{Configuration, KV_TOKENS};
    use super::super::drawn::tests::{asked, run};
    use super::super::redrawn::limits;
    use super::super::source::Summarized;
    use super::*;
    use crate::twin::{Aggregate, HistoryRun, NO_COSTS};
    use crate::units::Rate;

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
        let says = |part: &str| found.notes.iter().any(|note| note.contains(part));
        assert!(
            says("knows nothing of its arrivals") && says("draws of a run are apart") && !says("far off"),
            "{found:?}"
        );
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
        let slow = Profile { costs: ENGINE.slower(9.0), ..engine() };
        let far = within(&[file.clone()], &[], &asked(), Some(&slow), 4).unwrap();
        assert!(far.notes.iter().any(|note| note.contains("far off")), "{:?}", far.notes);
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
