//! The twin in virtual time: arrivals in, latencies out, without waiting for anything.

use super::costs::StepCosts;
use super::fast::Answered;
use super::profile::Limits;
use super::scheduler::{PromptShape, Scheduler};

/// A request on its way to the engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrival {
    /// When it is sent, in seconds from the start of the replay.
    pub due_s: f64,
    pub prompt: PromptShape,
    /// Tokens of the answer, at least one.
    pub output_tokens: u32,
}

/// Serves the arrivals, which must be sorted by their due time. Tells when each got its first and last token, in the order of the
/// arrivals.
///
/// A request reaches the waiting queue `overhead` seconds after it is due and is seen by the first step that is composed from then on.
pub fn replay(costs: StepCosts, limits: Limits, arrivals: impl IntoIterator<Item = Arrival>) -> Vec<Answered> {
    replay_in(&mut Scheduler::new(costs, limits).sparing(true), &costs, arrivals)
}

/// A replay on an idle scheduler, whose steps cost what is given here. It is left idle, with its prefix cache as it is then.
pub fn replay_in(
    scheduler: &mut Scheduler,
    costs: &StepCosts,
    arrivals: impl IntoIterator<Item = Arrival>,
) -> Vec<Answered> {
    let mut arrivals = arrivals.into_iter().peekable();
    let mut done: Vec<Answered> = Vec::with_capacity(arrivals.size_hint().0);
    let (mut now, mut last) = (0.0, 0.0);
    loop {
        let composed = costs.composed_at(now, last);
        while let Some(arrival) = arrivals.next_if(|a| a.due_s + costs.overhead <= composed) {
            // The scheduler knows requests by their position, so that answers need no look-up.
            let position = done.len() as u64;
            done.push(Answered { at: arrival.due_s, first: f64::INFINITY, last: f64::INFINITY });
            scheduler.admit(position, arrival.prompt, arrival.output_tokens);
        }
        let Some(step) = scheduler.step() else {
            let Some(next) = arrivals.peek() else { return done };
            now = now.max(next.due_s + costs.overhead);
            last = 0.0;
            continue;
        };
        now += step.seconds;
        last = step.seconds;
        let emitted = step.tokens;
        for position in step.emitted {
            let request = &mut done[position as usize];
            if request.first.is_infinite() {
                request.first = now + costs.first_delivery(emitted);
            }
        }
        for position in step.finished {
            let request = &mut done[position as usize];
            request.last = (now + costs.last_delivery(emitted)).max(request.first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::profile::Profile;
    use super::*;
    use autotune_numerics::repeatable::uniform;

    fn stream(n: u64, rate: f64) -> impl Iterator<Item = Arrival> {
        let mut uniform = uniform(7);
        let mut due = 0.0;
        (0..n).map(move |_| {
            due -= uniform().ln() / rate;
            let prompt = PromptShape { tokens: 150 + (uniform() * 101.0) as u32, blocks: Vec::new() };
            Arrival { due_s: due, prompt, output_tokens: 16 + (uniform() * 17.0) as u32 }
        })
    }

    #[test]
    fn a_single_request_takes_what_its_steps_take() {
        let p = Profile::quickstart();
        let limits = p.limits(0.9, 8, 128).unwrap();
        let prompt = PromptShape { tokens: 200, blocks: Vec::new() };
        let done = replay(p.costs, limits, [Arrival { due_s: 1.0, prompt, output_tokens: 2 }]);
        let c = p.costs;
        let first = 1.0 + c.overhead + 2.0 * c.base + 200.0 * c.per_prefill_token;
        let last = first + c.base + c.per_decode + 201.0 * c.per_context_token;
        assert_eq!(done.len(), 1);
        assert!((done[0].first - first).abs() < 1e-9, "{done:?}");
        assert!((done[0].last - last).abs() < 1e-9, "{done:?}");
    }

    #[test]
    fn a_replay_repeats_exactly_and_loses_nobody() {
        let p = Profile::quickstart();
        let limits = p.limits(0.85, 32, 256).unwrap();
        let once = replay(p.costs, limits, stream(20_000, 60.0));
        assert_eq!(once.len(), 20_000);
        assert!(once.iter().all(|r| r.at < r.first && r.first < r.last && r.last.is_finite()));
        assert_eq!(once, replay(p.costs, limits, stream(20_000, 60.0)));
    }

    #[test]
    fn a_request_that_never_fits_is_infinitely_late_and_stops_nobody() {
        let p = Profile::quickstart();
        let limits = Limits { num_blocks: 20, ..p.limits(0.9, 8, 128).unwrap() };
        let prompt = |tokens| PromptShape { tokens, blocks: Vec::new() };
        let arrivals = [400, 200].map(|n| Arrival { due_s: 0.0, prompt: prompt(n), output_tokens: 4 });
        let done = replay(p.costs, limits, arrivals);
        assert!(done[0].first.is_infinite() && done[1].last.is_finite());
    }
}
