//! The proof: a cold engine, arrivals that the search never used, and the rate moved until its limit is known closely enough.
//!
//! Then what no probe of minutes on one launch shows is taken from it: bursts from which the engine does not recover (`endurance`), and
//! launches that are slower than this one (`launches`).

use super::bench::BenchError;
use super::certifier::{Certifier, Curve};
use super::endurance::LOWEST;
use super::pairing::Hindsight;
use super::session::{CONTENT, Session};
use crate::journal::{DirectlySeen, Placed, Purpose};
use crate::rig::{ProbeAsk, Rig};
use crate::search::{Expectation, round};
use crate::space::Point;
use crate::units::{Rate, Seconds};
use crate::verdict::{Certainty, Outcome, Verdict, Window};
use crate::workload::mix;

/// Certification begins this far below the search's estimate: nearest to where the certified rate will be.
const BEGIN: f64 = 0.985;
/// Where the engine does not endure that, certification begins so many times above what it does: what the ceiling is uncertain by.
const ABOVE: f64 = 1.03;
/// So many probes at most.
const TRIES: u64 = 5;
/// Another probe must be expected to raise the certified rate by this share of the least gain that a launch of the search is worth: it costs no
/// launch. With a whole one the median certified rate of `cargo bench --bench search` fell below 95 % of its limit.
const WORTH: f64 = 0.5;
/// The label of the seeds of fresh traffic.
const FRESH: u64 = 3;
/// A certifying window lasts for so many answers at least: in a shorter one a slow engine has not yet come to where it goes.
const ANSWERS: f64 = 15.0;
/// The twin is asked at so many rates on both sides of a driven one, each so many times the one before.
const AROUND: i32 = 6;
const STEP: f64 = 1.04;

impl<R: Rig> Session<'_, R> {
    /// Drives a cold engine with fresh arrivals near the estimate until its limit is known to the precision asked for, or the budget ends
    /// but for so many certifications that come after. Beside a point whose limit is known it is also enough to be surely below that. What
    /// could not be proved is among what was left out.
    pub(super) async fn certify(
        &mut self,
        purpose: Purpose,
        placed: Placed,
        beside: Option<&Placed>,
        certifications: u32,
    ) -> Result<Placed, BenchError> {
        let whose = if purpose == Purpose::Certify { "the best point" } else { "the baseline" };
        let what = format!("the certification of {whose}");
        let Some(estimate) = placed.estimated_rate else { return Ok(placed) };
        if !self.affords(self.prices().launch + self.prices().certify, certifications) {
            self.left_out(format!("{what}: the budget ended"));
            return Ok(placed);
        }
        self.bench.dismiss_witnesses();
        if let Err(diagnosis) = self.bench.launch(purpose, &placed.point).await? {
            self.left_out(format!("{what}: {}", diagnosis.says));
            return Ok(placed);
        }
        // Where the memory is tuned, a start says little: others saw engines start and then run out of memory under load.
        if self.tuned_memory().is_some() && !self.survives(&placed.point).await? {
            self.left_out(format!("{what}: the engine runs out of memory when every place of its batch is taken"));
            return Ok(placed);
        }
        if !self.stressed(&placed.point, estimate).await? {
            self.left_out(format!(
                "{what}: the engine does not survive the batches that hours of this traffic come to"
            ));
            return Ok(placed);
        }
        self.bench.fit_well();
        let (mut certifier, mut heard): (Certifier, Vec<(Rate, Verdict)>) = (Certifier::default(), Vec::new());
        let (mut rate, mut ended) = (self.begin(&placed.point, estimate), format!("{TRIES} probes"));
        let rival = beside.and_then(|rival| rival.certified_rate.and(rival.limit).zip(rival.limit_error));
        for attempt in 0..TRIES {
            let again = attempt > 0 && certifier.wants_launches();
            let price = if again { self.prices().launch + self.prices().certify } else { self.prices().certify };
            if attempt > 0 && !self.affords(price, certifications) {
                "the budget".clone_into(&mut ended);
                break;
            }
            if again && let Err(diagnosis) = self.bench.launch(purpose, &placed.point).await? {
                ended = diagnosis.says;
                break;
            }
            match self.bench.probe(self.fresh(rate, attempt), Certainty::CERTIFIED).await? {
                Ok(verdict) if verdict.outcome == Outcome::Void => {}
                Ok(verdict) => {
                    certifier.hear(rate, &verdict, self.curves(&placed.point, rate));
                    heard.push((rate, verdict));
                    self.doubt(&placed.point, &mut certifier);
                }
                Err(diagnosis) => {
                    ended = diagnosis.says;
                    break;
                }
            }
            self.standing(0);
            if rival.is_some_and(|(limit, error)| certifier.is_below(limit, error)) {
                "it is surely below the best point".clone_into(&mut ended);
                break;
            }
            if certifier.done(self.plan.search.precision, self.plan.search.min_gain * WORTH) {
                "another probe is not expected to raise the rate".clone_into(&mut ended);
                break;
            }
            rate = certifier.next(rate);
        }
        let Some(proof) = certifier.proof() else {
            self.left_out(format!("{what}: no rate down to {rate} held on fresh traffic ({ended})"));
            return Ok(placed);
        };
        if !certifier.precise(self.plan.search.precision) {
            let (known, asked) = (proof.error * 100.0, self.plan.search.precision * 100.0);
            self.left_out(format!("{what} to +-{asked} %: the limit is known to +-{known:.1} % ({ended})"));
        }
        let away = |rate: Rate| (rate.0 / proof.rate.0).ln().abs();
        let nearest = heard.iter().min_by(|a, b| away(a.0).total_cmp(&away(b.0)));
        Ok(Placed {
            certified_rate: Some(proof.rate),
            confidence: Some(proof.confidence),
            limit: Some(proof.limit),
            limit_error: Some(proof.error),
            binding: nearest.and_then(|(_, verdict)| verdict.binding.clone()),
            windows_that_hold: nearest.and_then(|(_, verdict)| verdict.windows_that_hold()),
            seen: nearest.map(|(rate, verdict)| seen(*rate, verdict)),
            ..placed
        })
    }

    /// The first rate: just below the estimate, and where the engine does not endure that, just above what it does endure, so that the
    /// highest rate that can be certified was driven.
    fn begin(&mut self, point: &Point, estimate: Rate) -> Rate {
        let begin = estimate * BEGIN;
        let costs = self.bench.in_hindsight().map(|hindsight| hindsight.costs);
        let ceiling = costs.and_then(|costs| self.ceiling(point, &costs, begin)).filter(|c| *c > begin * LOWEST);
        round(ceiling.map_or(begin, |ceiling| Rate(begin.0.min(ceiling.0 * ABOVE))))
    }

    /// Takes from what was proved so far what no probe of one launch shows: how others differ, and from which rate on the engine would not
    /// come back from a burst.
    fn doubt(&mut self, point: &Point, certifier: &mut Certifier) {
        let Some(Hindsight { costs, launches }) = self.bench.in_hindsight() else { return };
        certifier.launched(launches);
        certifier.bound(None);
        let Some(ceiling) = certifier.proof().and_then(|proof| self.ceiling(point, &costs, proof.rate)) else { return };
        certifier.bound(Some(ceiling));
        self.note(&format!(
            "nothing above {} is certified: a burst may come from which the engine does not recover",
            round(ceiling)
        ));
    }

    /// Traffic that the search never used; the same arrivals for the best point and the baseline.
    fn fresh(&self, rate: Rate, attempt: u64) -> impl Fn(u32, u32, Seconds) -> ProbeAsk + use<R> {
        let (seed, ramp, planned) = (self.seed, self.ramp(), Seconds::from(self.plan.probe.certify_window));
        move |trial, probe, answer_time| ProbeAsk {
            rate,
            window: Window { from: ramp, to: ramp + Seconds(planned.0.max(ANSWERS * answer_time.0)) },
            arrival_seed: mix(seed, &[FRESH, attempt]),
            content_seed: mix(seed, &[FRESH, CONTENT, u64::from(trial), u64::from(probe)]),
            answer_time,
            slack: 1.0,
        }
    }

    /// What the twin expects of each margin around a rate; nothing where it does not know one of them.
    fn curves(&mut self, point: &Point, rate: Rate) -> Vec<Curve> {
        let mut foresight = self.foresight();
        let mut curves: Vec<Curve> = Vec::new();
        for step in -AROUND..=AROUND {
            let there = Rate(rate.0 * STEP.powi(step));
            let margins = foresight.margins(point, there);
            curves.resize(margins.len().max(curves.len()), Vec::new());
            for (curve, margin) in curves.iter_mut().zip(margins) {
                curve.extend(margin.map(|margin| (there.0.ln(), margin)));
            }
        }
        curves
    }
}

fn seen(rate: Rate, verdict: &Verdict) -> DirectlySeen {
    let measured = verdict.limits.iter().map(|l| (l.key.clone(), l.measured)).collect();
    DirectlySeen { rate, requests: verdict.counted, measured }
}
