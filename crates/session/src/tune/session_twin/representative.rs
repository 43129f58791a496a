//! Representative arrivals: of several draws, a window gets those whose p99s, as the twin replays it, are nearest to those of a long run.
//!
//! The way from a window to a long run has the error of a slope, which few blocks of time tell. The shorter the way, the less that matters. In two
//! proof windows of `results/h200-70b-search-fifth` p99 was 17 and 19 % below a long run's. The errors were 4.2 and 4.8 %. In the one of
//! `results/h200-70b-search-sixth`, whose arrivals were chosen, it was 2 % above, and the error 2.5 %.
//!
//! The choice knows only the twin, never the engine. Only windows that certify are chosen. In the 90 s of a search one block of time would hold the
//! whole tail. All points are compared on the same arrivals there.

use tracing::{debug, debug_span};

use super::{SessionTwin, TrafficSource, TwinEngine, think_time};
use crate::rig::ProbeAsk;
use crate::verdict::paired::{Flight, log_quantile_of};
use autotune_numerics::parallel;
use autotune_plan::settings::Limit;
use autotune_records::units::{Rate, Seconds};
use autotune_twin::{FastReplay, StepCosts, replay_faithfully};
use autotune_workload::{mix, outline};

/// A seed that was chosen for one point serves the other too. Its p99s must lie this near to those of a long run, in logarithms.
const NEAR: f64 = 0.04;

impl SessionTwin {
    /// The seed of the arrivals of a probe: the most representative of some that follow from the seed that was asked for. It stays what it was where
    /// that is representative enough, where no twin judges, or where the twin does not know the long run. Before any choice it is the seed that was
    /// asked for.
    pub fn representative_arrivals(&mut self, engine: &TwinEngine, source: TrafficSource, ask: &ProbeAsk) -> u64 {
        let asked = ask.arrival_seed;
        let before = self.arrivals.get(&asked).copied().unwrap_or(asked);
        let Some(fit) = self.judging_fit().filter(|_| self.decides() && !ask.is_burst()) else { return before };
        let (costs, draws) = (fit.costs, self.sample_sizes.draws_of_arrivals);
        let _span = debug_span!("representative_arrivals", rate = %ask.rate, draws).entered();
        let (long, _) = self.long_run.through(engine, &costs, source, ask.rate);
        let of = |limit: &Limit| long.log_of(limit.metric, limit.quantile).filter(|_| !long.out_of_scope);
        let Some(long) = source.plan.slo.iter().map(of).collect::<Option<Vec<f64>>>() else { return before };
        let far = |seed: &u64| {
            let (window, out_of_scope) = replayed(engine, &costs, source, &ProbeAsk { arrival_seed: *seed, ..*ask })?;
            Some((out_of_scope, distance(&window, &long, &source.plan.slo)))
        };
        if let Some((false, distance)) = far(&before)
            && distance <= NEAR
        {
            debug!(distance, "as before");
            return before;
        }
        let seeds: Vec<u64> = (0..draws).map(|n| drawn_seed(asked, n)).collect();
        let far = parallel::map(&seeds, far, |_| ());
        let known = seeds.into_iter().zip(far).filter_map(|(seed, far)| Some((seed, far?)));
        let nearest = known.min_by(|(_, a), (_, b)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let Some((seed, (out_of_scope, distance))) = nearest else { return before };
        debug!(distance, out_of_scope, "chosen");
        seed
    }

    /// Takes note of the arrivals of a probe: the seed that was asked for, and the one that they have.
    pub fn note_arrivals(&mut self, asked: u64, sent: u64) {
        self.arrivals.insert(asked, sent);
    }
}

/// The seed of the n-th draw; the first is the seed itself.
fn drawn_seed(seed: u64, n: u64) -> u64 {
    if n == 0 { seed } else { mix(seed, &[n]) }
}

/// The quantile of each promise in the window of a probe, as the twin replays it, in logarithms. Also whether that leaves what the twin knows. None
/// where the twin does not know one of the promises.
fn replayed(
    engine: &TwinEngine,
    costs: &StepCosts,
    TrafficSource { plan, material, seed }: TrafficSource,
    ask: &ProbeAsk,
) -> Option<(Vec<f64>, bool)> {
    let outlines = outline(&plan.workload, material, ask.pace(seed), usize::MAX, |_| ask.answer_time);
    let sent = engine.sent(&outlines, Rate(1.0), think_time(plan), material.documents_apart());
    let mut answers = Vec::new();
    let fidelity = replay_faithfully(costs, engine.bounds, &sent, &mut FastReplay::default(), &mut answers);
    let all = answers.into_iter().zip(sent.iter().map(|sent| sent.output));
    let window: Vec<Flight> = all.filter(|(answer, _)| ask.window.holds(Seconds(answer.at))).collect();
    let of = |limit: &Limit| log_quantile_of(&window, limit.metric, limit.quantile);
    Some((plan.slo.iter().map(of).collect::<Option<_>>()?, fidelity.out_of_scope()))
}

/// How far the quantiles of a window lie from those of a long run, in logarithms. A promise counts by as much less as it is further from its limit
/// than the nearest one.
fn distance(window: &[f64], long: &[f64], promises: &[Limit]) -> f64 {
    let margins = || long.iter().zip(promises).map(|(long, limit)| long - limit.at_most.0.ln());
    let worst = margins().fold(f64::NEG_INFINITY, f64::max);
    let each = window.iter().zip(long).zip(margins());
    each.map(|((window, long), margin)| (window - long).abs() - (worst - margin)).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::super::super::sample_sizes::SampleSizes;
    use super::*;
    use crate::quickstart::quickstart;
    use crate::verdict::{Slack, Window, fixtures};
    use autotune_twin::{Bounds, Profile};
    use autotune_workload::Material;

    #[test]
    fn of_several_draws_the_most_representative_window_is_chosen_and_sent_again() {
        let plan = quickstart(&[]);
        let (material, costs) = (Material::default(), Profile::quickstart().costs);
        let source = TrafficSource { plan: &plan, material: &material, seed: 7 };
        let bounds = Bounds { max_num_seqs: 64, max_num_batched_tokens: 2048, kv_tokens: Some(100_000) };
        let engine = TwinEngine::bare(bounds);
        let window = Window { from: Seconds(2.0), to: Seconds(12.0) };
        let ask = ProbeAsk { window, arrival_seed: 3, ..ProbeAsk::at(Rate(60.0)) };
        let mut session_twin = SessionTwin::new(SampleSizes::SMALL);
        let of = |twin: &mut SessionTwin, ask: &ProbeAsk| twin.representative_arrivals(&engine, source, ask);
        assert_eq!(of(&mut session_twin, &ask), 3, "no twin judges");

        let (long, _) = session_twin.long_run.through(&engine, &costs, source, ask.rate);
        let log = |limit: &Limit| long.log_of(limit.metric, limit.quantile).unwrap();
        let long: Vec<f64> = source.plan.slo.iter().map(log).collect();
        let far = |seed: u64| {
            let ask = ProbeAsk { arrival_seed: seed, ..ask };
            distance(&replayed(&engine, &costs, source, &ask).unwrap().0, &long, &plan.slo)
        };
        let draws: Vec<u64> = (0..SampleSizes::SMALL.draws_of_arrivals).map(|n| drawn_seed(3, n)).collect();
        let nearest = draws.iter().map(|seed| far(*seed)).fold(f64::INFINITY, f64::min);
        session_twin.adopt(fixtures::fit(costs, &[0.0, 0.0]));
        let chosen = of(&mut session_twin, &ask);
        assert!(draws.contains(&chosen) && far(chosen) == nearest && nearest < far(3), "{nearest} of {}", far(3));
        let burst = ProbeAsk { slack: Slack::UNBOUNDED, ..ask };
        assert_eq!(of(&mut session_twin, &burst), 3, "a burst is no window of a long run");

        // What was sent before is sent again where it is representative enough, though another draw is nearer.
        for before in draws {
            session_twin.note_arrivals(3, before);
            let again = of(&mut session_twin, &ask);
            let enough = far(before) <= NEAR;
            assert_eq!(again, if enough { before } else { chosen }, "{}", far(before));
        }
    }

    #[test]
    fn a_promise_that_is_far_from_its_limit_counts_less() {
        let promises = quickstart(&[]).slo;
        let long: Vec<f64> = promises.iter().map(|limit| limit.at_most.0.ln()).collect();
        let of = |first: f64, second: f64, room: f64| {
            let long = [long[0], long[1] - room];
            distance(&[long[0] + first, long[1] + second], &long, &promises)
        };
        assert!((of(0.1, -0.3, 0.0) - 0.3).abs() < 1e-9 && (of(0.1, -0.3, 0.25) - 0.1).abs() < 1e-9);
        assert!((of(-0.1, 0.3, 0.1) - 0.2).abs() < 1e-9);
    }
}
