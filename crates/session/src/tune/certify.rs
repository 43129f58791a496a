//! Certification: arrivals that the search never used, an empty prefix cache, and rates that move until the limit is known closely enough. New
//! arguments are certified on an engine that was launched with exactly these, beside what lets it change its limits. The defaults have started
//! before: a running engine that can take their limits is enough for them. Its KV cache may be a little smaller than theirs, never larger.
//!
//! One effect lowers the result, though no probe of minutes shows it: the engine does not recover from some bursts (`stress`).

use super::certifier::{CEILING_OVER_SURE_RATE, MarginCurve, unproved};
use super::context::Context;
use super::cost::{Before, certifying};
use super::memory::survived;
use super::predictor::Ceiling;
use super::proving::Proving;
use super::runner::RunnerError;
use super::seeds::SeedLabel;
use super::trial::{Asking, TrialRequest};
use crate::events::Event;
use crate::journal::{PointResult, Purpose};
use crate::rig::{ProbeAsk, Rig};
use crate::search::Expectation;
use crate::verdict::{Certainty, Outcome, Verdict, Window};
use autotune_records::units::{Rate, Seconds};

/// The first rate of a proof over the limit that the search expects: about where the certified rate will be. At 0.985, more first windows were cut:
/// 14 simulated sessions took 5 % more GPU minutes (`docs/results.md`, the search), and `results/h200-70b-search-tenth` two minutes.
const BEGIN: f64 = 0.96;
/// Where a ceiling lies below that rate, certification begins at this many times the ceiling: the limit is expected there.
const ABOVE: f64 = 1.03;
/// The twin is asked at so many rates on both sides of a driven one, each so many times the one before.
const AROUND: i32 = 6;
const STEP: f64 = 1.04;

/// Whole windows of a proof, at most.
pub const TRIES: u64 = 5;
/// All windows of a proof, at most. Some are cut after seconds. With five in all, four were cut in a session of real vLLM on two CPU cores. It ended
/// without an answer and with seven of its ten minutes left.
const MOST_WINDOWS: u64 = 2 * TRIES;

/// Whether a proof has had its windows: so many whole ones, or so many in all.
fn is_spent(windows: u64, judged: &[(Rate, Verdict)]) -> bool {
    let whole = judged.iter().filter(|(_, verdict)| verdict.complete).count() as u64;
    whole >= TRIES || windows >= MOST_WINDOWS
}

/// The rate that a verdict is about. If a pair judges the binding promise, it is the rate that was asked for. If the count decides, it is the lowest
/// of that, the rate that arrived, and the rate that was served while the queue grew. A probe that was cut short says nothing of what would have
/// arrived, and one that failed by its queue failed at what arrived.
fn judged_rate(asked: Rate, verdict: &Verdict) -> Rate {
    let by_pair = verdict.binding_limit().is_some_and(|limit| limit.decided_by_pair().is_some());
    let counted = verdict.served.filter(|_| !verdict.saturated).unwrap_or(verdict.offered);
    if by_pair || !verdict.complete { asked } else { Rate(asked.0.min(counted.0)) }
}

impl<R: Rig> Context<'_, R> {
    /// Drives a point with fresh arrivals near its estimate. It ends when the limit is known to the precision, or after as many windows as a proof
    /// may have. It also ends when the rest of the budget is kept for the proofs to come. What could not be proved is among what was left out.
    pub async fn certify(
        &mut self,
        purpose: Purpose,
        placed: &mut PointResult,
        to_come: &[Purpose],
    ) -> Result<(), RunnerError> {
        let Some(estimate) = placed.estimated_rate else { return Ok(()) };
        let mut one = Proving::new(purpose, placed.point.clone(), estimate);
        one.ended = self.prepare(&mut one, to_come).await?;
        while one.ended.is_none() {
            self.drive(&mut one, to_come).await?;
        }
        self.conclude(one, placed);
        Ok(())
    }

    /// Starts the engine of a proof, and shows it the batches that it has to survive. Returns why there is nothing to drive, if so.
    async fn prepare(&mut self, one: &mut Proving, to_come: &[Purpose]) -> Result<Option<String>, RunnerError> {
        let before = self.trial_runner.before(0, &TrialRequest::of(one.purpose, one.point.clone()));
        let price = self.prices().certify + self.prices().preparing(before);
        if !self.affords(price, to_come) {
            return Ok(Some(self.budget_too_small(price, to_come)));
        }
        // What was seen of other points says nothing of this one.
        self.trial_runner.twin().dismiss();
        match self.trial_runner.launch(one.purpose, one.point.clone()).await? {
            Ok(ready) => one.certifier.shared = ready.shared,
            Err(diagnosis) => return Ok(Some(diagnosis.says)),
        }
        // Where the memory is tuned, a start says little: others saw engines start and then run out of memory under load. Defaults that nobody deploys
        // need no such load, nor do those that a process served for the whole search.
        let served_the_search = before != Before::Launching && self.defaults.as_ref() == Some(&one.point);
        if self.plan.tuned_memory().is_some() && one.is_best() && !served_the_search {
            let soak = self.soak(&one.point);
            if !survived(&self.send_burst(soak).await?) {
                return Ok(Some("the engine runs out of memory when every place of its batch is taken".to_owned()));
            }
        }
        // With the same step times, the burst and the first rate share a stress replay.
        self.trial_runner.fit_to_all();
        if let Some(burst) = self.burst(&one.point, one.estimate)
            && self.send_burst(burst).await?.is_err()
        {
            let dies = "the engine does not survive the batches that a long run of this traffic comes to";
            return Ok(Some(dies.to_owned()));
        }
        self.trial_runner.fit_to_all();
        one.rate = self.begin(one);
        Ok(None)
    }

    /// Why no other window of a proof is driven; `None` if one is wanted.
    fn why_ended(&self, one: &Proving) -> Option<String> {
        let (search, prices) = (&self.plan.search, self.prices());
        if one.certifier.done(search.precision, search.min_gain * one.worth(&prices)) {
            return Some("another probe is not expected to raise the rate".to_owned());
        }
        let of_defaults = self.proofs.iter().find(|proof| self.defaults.as_ref() == Some(&proof.point));
        let certified = of_defaults.and_then(|proof| Some(proof.certifier.proof()?.rate));
        if let Some(rate) = certified.filter(|rate| one.is_best() && one.certifier.failed_at(*rate)) {
            return Some(format!("it cannot gain: it breaks a promise where the defaults are certified, at {rate}"));
        }
        is_spent(one.windows, &one.judged).then(|| format!("{} probes", one.windows))
    }

    /// Drives the engine once more, where the budget holds that.
    async fn drive(&mut self, one: &mut Proving, to_come: &[Purpose]) -> Result<(), RunnerError> {
        let certify = self.prices().certify;
        if one.windows > 0 && !self.affords(certify, to_come) {
            one.ended = Some(self.budget_too_small(certify, to_come));
            return Ok(());
        }
        let window = self.fresh(one);
        one.windows += 1;
        match self.trial_runner.probe((window, Certainty::CERTIFIED)).await? {
            Err(diagnosis) => {
                one.ended = Some(diagnosis.says);
                return Ok(());
            }
            Ok(verdict) if verdict.outcome != Outcome::Void => {
                let rate = judged_rate(one.rate, &verdict);
                one.certifier.add_probe(rate, &verdict, self.curves(one));
                one.judged.push((rate, verdict));
                self.apply_stress_ceiling(one);
            }
            Ok(_) => {}
        }
        one.ended = self.why_ended(one);
        if one.ended.is_none() {
            one.rate = one.certifier.next(one.rate);
        }
        self.standing(self.prices().proving(to_come.len(), usize::from(one.ended.is_none())));
        Ok(())
    }

    fn conclude(&mut self, one: Proving, placed: &mut PointResult) {
        let (what, ended) = (one.what(), one.ended.clone().unwrap_or_default());
        if one.windows == 0 {
            self.left_out(format!("{what}: {ended}"));
            return;
        }
        if let Some(proof) = one.certifier.proof() {
            if !one.certifier.precise(self.plan.search.precision) {
                self.left_out(one.certifier.imprecise(what, self.plan.search.precision, &proof, &ended));
            }
            *placed = one.proved(&proof, placed);
        } else {
            let lowest = one.judged.iter().map(|(rate, _)| rate.0).fold(one.rate.0, f64::min);
            self.left_out(unproved(what, Rate(lowest), &ended));
        }
        self.proofs.push(one);
    }

    /// The first rate: below the estimate, about where the certified rate will be, or just above a lower ceiling.
    fn begin(&mut self, one: &Proving) -> Rate {
        let begin = one.estimate * BEGIN;
        let costs = self.trial_runner.twin().pooled_steps();
        let ceiling = costs.and_then(|costs| self.ceiling(&one.point, &costs, begin));
        let highest = if let Some(Ceiling::At(ceiling)) = ceiling { ceiling.0 * ABOVE } else { f64::INFINITY };
        Rate(begin.0.min(highest)).rounded()
    }

    /// Lowers what was proved by what no probe of minutes shows: above some rate the engine does not recover from a burst.
    fn apply_stress_ceiling(&mut self, Proving { point, certifier, rate, .. }: &mut Proving) {
        let Some(costs) = self.trial_runner.twin().pooled_steps() else { return };
        certifier.bound(Ceiling::Above);
        let Some(proof) = certifier.proof() else { return };
        // A ceiling matters as far as it lowers the certified rate, or the next one.
        let highest = Rate((proof.rate.0 * CEILING_OVER_SURE_RATE).max(certifier.next(*rate).0));
        let Some(ceiling) = self.ceiling(point, &costs, highest) else { return };
        certifier.bound(ceiling);
        if let Some(says) = ceiling.says(highest) {
            self.sink.take(&Event::Detail(&says));
        }
    }

    /// Traffic that the search never used, for the baseline no longer than planned. Both points get the same arrivals where these are representative
    /// for both (`representative_arrivals`).
    fn fresh(&self, one: &Proving) -> Asking {
        let (seed, plan, rate, nth) = (self.seed, self.plan.probe, one.rate, one.windows);
        let is_best = one.is_best();
        let ramp = Seconds::from(plan.ramp);
        let window =
            move |answer_time| if is_best { certifying(&plan, answer_time) } else { plan.certify_window.into() };
        Box::new(move |trial, probe, answer_time| ProbeAsk {
            window: Window { from: ramp, to: ramp + window(answer_time) },
            arrival_seed: SeedLabel::FreshTraffic.of(seed, &[nth]),
            content_seed: SeedLabel::FreshTraffic
                .of(seed, &[SeedLabel::Content as u64, u64::from(trial), u64::from(probe)]),
            ..ProbeAsk::at(rate)
        })
    }

    /// What the twin expects of each margin around the rate that was driven; nothing where it does not know one of them.
    fn curves(&mut self, Proving { point, rate, .. }: &Proving) -> Vec<MarginCurve> {
        let mut predictor = self.predictor(0);
        let mut curves: Vec<MarginCurve> = Vec::new();
        for step in -AROUND..=AROUND {
            let there = Rate(rate.0 * STEP.powi(step));
            let margins = predictor.margins(point, there);
            curves.resize(margins.len().max(curves.len()), Vec::new());
            for (curve, margin) in curves.iter_mut().zip(margins) {
                curve.extend(margin.map(|margin| (there.0.ln(), margin)));
            }
        }
        curves
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::fixtures::{self, counted, paired};
    use crate::verdict::paired::Judge;

    #[test]
    fn windows_that_were_cut_do_not_use_up_a_proof() {
        let windows = |whole: usize, cut: usize| {
            let verdict = |complete| (Rate(9.0), fixtures::verdict(Outcome::Fail, Vec::new(), complete));
            let judged: Vec<_> = (0..whole + cut).map(|n| verdict(n < whole)).collect();
            is_spent(judged.len() as u64, &judged)
        };
        assert!(!windows(1, 4) && !windows(4, 5) && windows(5, 0) && windows(0, 10));
    }

    #[test]
    fn a_counted_probe_is_about_what_arrived_and_was_served() {
        let counted_at = |offered: f64, served: Option<f64>| Verdict {
            offered: Rate(offered),
            served: served.map(Rate),
            ..fixtures::verdict(Outcome::Pass, vec![counted("ttft_p99")], true)
        };
        let about = |verdict: &Verdict| judged_rate(Rate(45.0), verdict).0;
        assert_eq!((about(&counted_at(46.6, None)), about(&counted_at(44.0, None))), (45.0, 44.0));
        assert_eq!(about(&counted_at(46.6, Some(43.2))), 43.2, "the queue grew");
        assert_eq!(about(&Verdict { saturated: true, ..counted_at(44.0, Some(30.0)) }), 44.0);
        assert_eq!(about(&Verdict { complete: false, ..counted_at(44.0, Some(30.0)) }), 45.0);
        let mut by_pair = counted_at(44.0, Some(30.0));
        by_pair.limits[0].paired = Some(paired("ttft_p99", -0.1, 0.1, 0.9, Judge::Paired));
        assert_eq!(about(&by_pair), 45.0);
    }
}
