//! The conclusion: what a session found, in a sentence and in numbers.

use super::context::Context;
use crate::journal::{Conclusion, Entry, Gain, PointResult, Record, Status};
use crate::rig::Rig;
use crate::search::Expectation;
use crate::verdict::{LimitResult, Verdict};
use autotune_plan::engine::diagnosis::{Cause, Diagnosis};
use autotune_plan::problems::join;
use autotune_plan::settings::Limit;
use autotune_records::units::{Rate, Seconds};

/// A useful rate, as a share of what the burst of the warm-up was answered at.
const USEFUL: f64 = 0.5;
/// A limit that would hold lies so many times above what the twin expects.
const ROOM: f64 = 1.1;
/// Search and proof disagree if the proof finds a limit below this share of what the search expected. In `results/h200-8b-gain-sixth` it found a third.
const DISAGREE: f64 = 0.75;

/// The answer where a best point was found. It is the baseline if its certified rate is as high.
pub fn answer(baseline: PointResult, best: PointResult, mut left_out: Vec<String>) -> Conclusion {
    let best = if baseline.certified_rate.is_some() && baseline.certified_rate >= best.certified_rate {
        left_out.extend(disagreement(&best).filter(|_| best.point != baseline.point));
        baseline.clone()
    } else {
        best
    };
    let (status, because) = match (best.certified_rate, best.estimated_rate) {
        (Some(rate), _) => {
            let sure = best.confidence.map_or(String::new(), |c| format!(", {:.0} % sure", (c * 100.0).floor()));
            (Status::Certified, format!("{rate} certified{sure} with {}{}", best.point, compared(&baseline, &best)))
        }
        (None, Some(rate)) => {
            (Status::Uncertified, format!("about {rate} with {}, not certified: {}", best.point, left_out.join("; ")))
        }
        (None, None) => (Status::Uncertified, "nothing was measured".to_owned()),
    };
    Conclusion { best: Some(best), ..without_answer(status, because, Some(baseline), left_out) }
}

/// What is said of a point that the search preferred, where its proof found much less.
fn disagreement(best: &PointResult) -> Option<String> {
    let (expected, limit) = best.estimated_rate.zip(best.limit)?;
    let says =
        || format!("{}, of which the search expected {expected}: its proof found a limit of {limit}", best.point);
    (limit.0 < expected.0 * DISAGREE).then(says)
}

/// The certified rate of the defaults, and the gain over it by the two certified rates.
fn compared(baseline: &PointResult, best: &PointResult) -> String {
    if baseline.point == best.point {
        return "; the defaults are the best point found".to_owned();
    }
    let certified = baseline.certified_rate.zip(Gain::of(best, baseline));
    let Some((rate, Gain { gain, from, to })) = certified else { return String::new() };
    let [gain, from, to] = [gain, from, to].map(|share| share * 100.0);
    format!("; defaults {rate}: {gain:+.0} % (90 % interval: {from:+.0} to {to:+.0} %)")
}

fn without_answer(status: Status, because: String, baseline: Option<PointResult>, left_out: Vec<String>) -> Conclusion {
    Conclusion { status, because, baseline, best: None, left_out, enough_budget: None, forecast: None }
}

impl<R: Rig> Context<'_, R> {
    /// The answer where the engine can start with no point.
    pub fn nothing_starts(&self) -> Conclusion {
        without_answer(Status::NeverStarted, self.never_started(), None, Vec::new())
    }

    /// The answer where no point keeps the promises.
    pub fn nothing_found(&mut self, baseline: PointResult) -> Conclusion {
        let (status, because) = match (self.nearest.clone(), self.started) {
            (Some((rate, verdict)), _) => {
                let moves = self.what_moves(&baseline, rate, &verdict);
                let holds = self.what_would_hold(&baseline);
                let near = infeasible_sentence(rate, &verdict);
                let because = format!("no point keeps the promises at any rate tried; {near}{moves}{holds}");
                (Status::NotReachable, because)
            }
            // Nothing was measured, so nothing is known of the promises.
            (None, true) => (Status::Uncertified, format!("nothing was measured: {}", self.nothing_measured())),
            (None, false) => (Status::NeverStarted, self.never_started()),
        };
        without_answer(status, because, Some(baseline), self.left_out.clone())
    }

    /// Why no probe at a rate counts, and what the budget was spent on where it ended before the first.
    fn nothing_measured(&self) -> String {
        let entries = self.trial_runner.passed();
        if let Some(why) = &self.void {
            return format!("no probe counts, since {why}");
        }
        let at_a_rate = |entry: &Entry| matches!(&entry.record, Record::Broken { ask, .. } if !ask.is_burst());
        if self.enough.is_none() || entries.iter().any(at_a_rate) {
            let failed = entries.iter().rev().find_map(|entry| match &entry.record {
                Record::Broken { failure, .. } | Record::NotReady { failure, .. } => Some(&failure.diagnosis.says),
                _ => None,
            });
            return format!("no probe came to its end{}", failed.map_or(String::new(), |says| format!(": {says}")));
        }
        let steps = entries.iter().filter_map(|entry| match &entry.record {
            Record::Ready { ready, .. } => Some(format!("{} to start and warm up the engine", ready.took)),
            Record::Probed { verdict, took, .. } => Some(format!("{took} for {} requests at once", verdict.counted)),
            _ => None,
        });
        let left = Seconds((self.budget() - self.trial_runner.spent()).0.max(0.0));
        let (budget, steps) = (self.budget(), join(steps, "and"));
        format!("the budget of {budget} is too small for a probe at a rate; it took {steps}; {left} are left")
    }

    /// Why no engine started, in the words of the last attempt: its log may be gone with the pod that held it.
    fn never_started(&self) -> String {
        let last = self.trial_runner.passed().iter().rev().find_map(|entry| match &entry.record {
            Record::NotReady { failure, .. } => Some(&failure.diagnosis),
            _ => None,
        });
        match last {
            Some(Diagnosis { cause: Cause::Refused, says, .. }) => says.clone(),
            Some(Diagnosis { says, line: Some(line), .. }) => {
                format!("no engine ever started: {says} (the log says: {line})")
            }
            Some(Diagnosis { says, .. }) => format!("no engine ever started: {says}"),
            None => "no engine ever started".to_owned(),
        }
    }

    /// What could be promised instead with the defaults at a useful rate, as the twin sees it.
    fn what_would_hold(&mut self, baseline: &PointResult) -> String {
        if self.defaults.is_none() {
            return String::new();
        }
        let ready = self.trial_runner.passed().iter().find_map(Entry::ready);
        let Some(rate) = ready.map(|ready| (ready.warmed.burst_rate * USEFUL).rounded()) else { return String::new() };
        let margins = self.predictor(0).margins(&baseline.point, rate);
        let limit = |(limit, margin): (&Limit, &Option<f64>)| {
            let needed = limit.at_most * (margin.as_ref()?.exp() * ROOM);
            Some(format!("{} {}", limit.key(), Seconds(needed.0.max(limit.at_most.0))))
        };
        let limits: Option<Vec<String>> = self.plan.slo.iter().zip(&margins).map(limit).collect();
        let Some(limits) = limits.filter(|limits| !limits.is_empty()) else { return String::new() };
        let limits = limits.join(" and ");
        format!("; limits of {limits} are expected to hold at {rate} with the defaults, by the simulation")
    }

    /// Which single parameter brings the binding promise nearest to its limit, as the twin sees it.
    fn what_moves(&mut self, baseline: &PointResult, rate: Rate, verdict: &Verdict) -> String {
        let Some(bound) = verdict.limits.iter().position(|l| Some(&l.key) == verdict.binding.as_ref()) else {
            return String::new();
        };
        let (space, limit) = (self.plan.space.clone(), &verdict.limits[bound]);
        let mut predictor = self.predictor(0);
        let mut margin = |point: &_| predictor.margins(point, rate).get(bound).copied().flatten();
        let Some(now) = margin(&baseline.point) else { return String::new() };
        let changes = space.parameters.iter().flat_map(|p| p.values.iter().map(|v| (&p.name, v)));
        let changed = changes.filter_map(|(name, value)| {
            let point = space.changed(&baseline.point, name, value.clone());
            let there = if space.admits(&point) { margin(&point) } else { None };
            Some((format!("{name} {value}"), there.filter(|there| *there < now - 0.01)?))
        });
        match changed.min_by(|a, b| a.1.total_cmp(&b.1)) {
            Some((change, there)) => {
                let value = Seconds(limit.at_most.0 * there.exp());
                format!("; in simulation, {change} lowers it most, to about {value}")
            }
            None => "; in simulation, no single parameter lowers it by more than 1 %".to_owned(),
        }
    }
}

/// What the lowest rate showed of each promise.
fn infeasible_sentence(rate: Rate, verdict: &Verdict) -> String {
    let limits: Vec<String> = verdict.limits.iter().map(LimitResult::beside_its_limit).collect();
    let binds = verdict.binding.as_ref().map_or(String::new(), |binding| format!("; {binding} breaks first"));
    format!("at {rate}, the lowest rate tried, {}{binds}", limits.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::COMMON_ERROR;
    use autotune_numerics::Z_95;
    use autotune_plan::space::{Point, Value};

    fn proved(seqs: i64, limit: f64) -> PointResult {
        let point = Point::default().with("max-num-seqs", Value::Int(seqs));
        let (rate, limit) = (Some(Rate(limit * 0.95)), Some(Rate(limit)));
        PointResult { certified_rate: rate, limit, limit_error: Some(0.03), ..PointResult::new(point) }
    }

    #[test]
    fn a_gain_is_that_of_the_certified_rates_and_its_interval_that_of_the_limits() {
        let with = |seqs: i64, limit: f64, error: f64| PointResult { limit_error: Some(error), ..proved(seqs, limit) };
        let spread = |gain: Gain| ((gain.to + 1.0) / (gain.from + 1.0)).ln() / (2.0 * Z_95);
        let gain = Gain::of(&with(16, 12.0, 0.04), &with(64, 10.0, 0.03)).unwrap();
        let own = 0.04_f64.powi(2) + 0.03_f64.powi(2) - 2.0 * COMMON_ERROR.powi(2);
        assert!((gain.gain - 0.2).abs() < 1e-9 && (spread(gain) - own.sqrt()).abs() < 1e-9, "{gain:?}");
        let precise = |best: PointResult| Gain::of(&best, &with(64, 10.0, 0.018)).unwrap();
        let half = 0.5 * (2.0 * 0.018_f64.powi(2)).sqrt();
        assert!((spread(precise(with(16, 12.0, 0.018))) - half).abs() < 1e-9, "half of it stays");
        // A proof that is less precise certifies further below its limit, which is no gain of the other point.
        let lower = PointResult { certified_rate: Some(Rate(9.5)), ..with(16, 12.0, 0.018) };
        let gain = precise(lower);
        assert!(
            gain.gain == 0.0 && gain.from == 0.0 && (gain.to - (1.2 * (Z_95 * half).exp() - 1.0)).abs() < 1e-9,
            "{gain:?}"
        );
        assert_eq!(Gain::of(&proved(64, 10.0), &proved(64, 10.0)), None);
    }

    #[test]
    fn the_point_with_the_higher_certified_rate_is_the_answer() {
        let chosen = |limit: f64| answer(proved(64, 10.0), proved(16, limit), Vec::new()).best.unwrap();
        assert_eq!(
            [9.9, 10.0, 10.1].map(|limit| chosen(limit).point),
            [64, 64, 16].map(|seqs| proved(seqs, 1.0).point)
        );
        let slow = PointResult { estimated_rate: Some(Rate(14.45)), ..proved(16, 5.0) };
        let says = "max-num-seqs 16, of which the search expected 14.45 req/s: its proof found a limit of 5.00 req/s";
        assert_eq!(answer(proved(64, 10.0), slow, Vec::new()).left_out, [says]);
        let near = PointResult { estimated_rate: Some(Rate(10.5)), ..proved(16, 9.9) };
        assert!(answer(proved(64, 10.0), near, Vec::new()).left_out.is_empty());
        let unproved = PointResult { certified_rate: None, ..proved(16, 12.0) };
        assert_eq!(answer(proved(64, 10.0), unproved, Vec::new()).best, Some(proved(64, 10.0)));
        let estimated =
            |seqs| PointResult { certified_rate: None, estimated_rate: Some(Rate(9.0)), ..proved(seqs, 9.0) };
        let because = answer(estimated(64), estimated(16), vec!["the budget is too small".to_owned()]).because;
        assert_eq!(because, "about 9.00 req/s with max-num-seqs 16, not certified: the budget is too small");
    }
}
