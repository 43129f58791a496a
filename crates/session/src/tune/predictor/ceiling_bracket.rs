//! What stress replays have shown of an engine, so that few of them tell where its ceiling lies.
//!
//! A replay that passes takes seconds on a few cores. Rates are rungs of one ladder for all engines, so that what is asked about twice is known.

use super::super::session_twin::TwinEngine;
use super::stress::StressResult;
use crate::rig::Peaks;
use crate::search::STEP;
use autotune_numerics::bisection::narrowed;
use autotune_records::units::Rate;

/// Rungs to a step of the search, so that a ceiling is found to 1.5 %. A whole step hid a gain of 8 %. On one simulated engine (L40S, multi-turn, a
/// small KV cache) no session launched the point that has it.
const RUNGS_TO_A_STEP: i32 = 4;
/// A little more than the factor between two neighbouring rungs.
const A_RUNG: f64 = 1.016;
/// A rate so many rungs higher is tried before one of which nothing is known: the search walks upwards, and what passes there passes below.
const AHEAD: i32 = 4 * RUNGS_TO_A_STEP;

/// The highest rung that passes a stress replay, and the lowest that does not, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Bracket {
    passed: Option<i32>,
    failed: Option<i32>,
}

impl Bracket {
    /// Whether a rung passes: a higher one never does where a lower one fails.
    fn tells(self, rung: i32) -> Option<bool> {
        let passes = self.passed.is_some_and(|passed| rung <= passed).then_some(true);
        passes.or(self.failed.is_some_and(|failed| rung >= failed).then_some(false))
    }

    /// This one, with the ends of an earlier one where it has none and they fit.
    fn or(self, earlier: Self) -> Self {
        let passed = self.passed.or(earlier.passed.filter(|passed| self.tells(*passed).is_none()));
        let failed = self.failed.or(earlier.failed.filter(|failed| self.tells(*failed).is_none()));
        Self { passed, failed }
    }

    /// How many of its ends are known.
    fn ends(self) -> usize {
        self.passed.iter().chain(&self.failed).count()
    }
}

#[derive(Clone)]
pub struct CeilingBracket {
    engine: TwinEngine,
    known: Bracket,
    /// Where the ceiling lay by an earlier fit, or lies on another engine. These two rungs are tried before others.
    guess: Bracket,
    /// The most that a step had where it passed, and where the lowest rung failed.
    peaks: (Peaks, Peaks),
}

impl CeilingBracket {
    /// What is known of an engine: by itself, and else by what others have shown.
    pub fn of(engine: &TwinEngine, all: &[Self]) -> Self {
        let own = all.iter().find(|known| known.is_of(engine));
        if let Some(own) = own.filter(|own| own.known != Bracket::default()) {
            return own.clone();
        }
        let shown = all.iter().filter_map(|other| other.shown_of(engine)).max_by_key(|shown| shown.known.ends());
        shown.unwrap_or_else(|| {
            // What another engine showed with the present fit is nearer than what this one showed with an earlier one. The cap moves a ceiling most.
            let cap = |other: &&Self| other.engine.bounds.max_num_seqs == engine.bounds.max_num_seqs;
            let fresh = all.iter().filter(|other| other.known.ends() == 2).max_by_key(cap);
            let guess = fresh.or(own).or(all.last()).map_or(Bracket::default(), |other| other.known.or(other.guess));
            Self { engine: *engine, known: Bracket::default(), guess, peaks: Default::default() }
        })
    }

    /// Takes its place among others.
    pub fn keep(self, all: &mut Vec<Self>) {
        all.retain(|other| !other.is_of(&self.engine));
        all.push(self);
    }

    pub fn is_of(&self, engine: &TwinEngine) -> bool {
        self.engine.bounds == engine.bounds && self.engine.reuses() == engine.reuses()
    }

    /// What it says of an engine with other limits of a step: where neither limit held a request back, both serve alike.
    fn shown_of(&self, engine: &TwinEngine) -> Option<Self> {
        let (own, other) = (self.engine.bounds, engine.bounds);
        let (cap, budget) =
            (own.max_num_seqs.min(other.max_num_seqs), own.max_num_batched_tokens.min(other.max_num_batched_tokens));
        let free = |peaks: Peaks| {
            (own.max_num_seqs == other.max_num_seqs || peaks.places < cap)
                && (own.max_num_batched_tokens == other.max_num_batched_tokens || peaks.step_tokens < u64::from(budget))
        };
        let (passed, failed) = self.peaks;
        let alike = own.kv_tokens == other.kv_tokens && self.engine.reuses() == engine.reuses() && free(passed);
        let known = Bracket { failed: self.known.failed.filter(|_| free(failed)), ..self.known };
        (alike && known.ends() > 0).then(|| Self { engine: *engine, known, ..self.clone() })
    }

    /// The step times changed: what was known is a guess now.
    pub fn refitted(&mut self) {
        (self.guess, self.known, self.peaks) = (self.known.or(self.guess), Bracket::default(), Default::default());
    }

    /// How far a rate lies above the highest that passes, in logarithms; no further than a step of the search in either direction.
    pub fn beyond(&mut self, rate: Rate, try_it: impl Fn(Rate) -> Option<StressResult>) -> Option<f64> {
        let rung = rung_of(rate);
        let passes = self.passes(rung, &try_it)?;
        let other = if passes { rung + RUNGS_TO_A_STEP } else { rung - RUNGS_TO_A_STEP };
        if self.passes(other, &try_it)? == passes {
            return Some(if passes { -STEP.ln() } else { STEP.ln() });
        }
        let ends = (rate_of(rung.min(other)).0, rate_of(rung.max(other)).0);
        let (low, high) = narrowed(ends, A_RUNG, |middle| self.passes(rung_of(Rate(middle)), &try_it))?;
        Some((rate.0 / f64::sqrt(low * high)).ln())
    }

    /// This one, after it was asked about rates from that one upwards, until one lies a step of the search above the ceiling. It asks five at most.
    pub fn searched_upwards(mut self, from: Rate, try_it: impl Fn(Rate) -> Option<StressResult>) -> Self {
        for step in 0..=AHEAD / RUNGS_TO_A_STEP {
            if self.beyond(from * STEP.powi(step), &try_it).is_none_or(|beyond| beyond >= STEP.ln()) {
                break;
            }
        }
        self
    }

    fn passes(&mut self, rung: i32, try_it: impl Fn(Rate) -> Option<StressResult>) -> Option<bool> {
        for tried in [self.first_for(rung), rung] {
            if self.known.tells(rung).or(self.known.tells(tried)).is_some() {
                continue;
            }
            let StressResult { passes, peaks } = try_it(rate_of(tried))?;
            if passes {
                self.known.passed = Some(tried);
                self.peaks.0.see(peaks);
            } else {
                (self.known.failed, self.peaks.1) = (Some(tried), peaks);
            }
        }
        self.known.tells(rung)
    }

    /// The rung whose answer most probably answers for this one and for others.
    fn first_for(&self, rung: i32) -> i32 {
        let below = self.guess.passed.filter(|passed| rung <= *passed);
        // A guess that passes was too low.
        let failed = self.guess.failed.filter(|failed| self.known.tells(*failed) != Some(true));
        let ahead = (failed.is_none() && self.known.failed.is_none()).then_some(rung + AHEAD);
        below.or(failed.filter(|failed| rung >= *failed)).or(ahead).unwrap_or(rung)
    }
}

fn rung_of(rate: Rate) -> i32 {
    (rate.0.ln() / STEP.ln() * f64::from(RUNGS_TO_A_STEP)).round() as i32
}

fn rate_of(rung: i32) -> Rate {
    Rate(STEP.powf(f64::from(rung) / f64::from(RUNGS_TO_A_STEP)))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use autotune_twin::Bounds;

    fn engine(max_num_seqs: u32) -> TwinEngine {
        with_budget(max_num_seqs, 512)
    }

    fn with_budget(max_num_seqs: u32, max_num_batched_tokens: u32) -> TwinEngine {
        TwinEngine::bare(Bounds { max_num_seqs, max_num_batched_tokens, kv_tokens: None })
    }

    /// An engine that takes 20 places and steps of 400 tokens up to a rung, and twice as much above it, where it collapses. It counts how often it
    /// is tried.
    fn up_to(ceiling: i32, tried: &AtomicUsize) -> impl Fn(Rate) -> Option<StressResult> + Sync {
        move |rate| {
            tried.fetch_add(1, Ordering::Relaxed);
            let passes = rung_of(rate) <= ceiling;
            let (places, step_tokens) = if passes { (20, 400) } else { (40, 800) };
            Some(StressResult { passes, peaks: Peaks { places, step_tokens, kv_usage: 0.0 } })
        }
    }

    #[test]
    fn rungs_are_found_again() {
        for at in [-300, -1, 0, 1, 77, 400] {
            assert_eq!(rung_of(rate_of(at)), at);
        }
    }

    #[test]
    fn what_is_known_is_not_tried_again() {
        let (tried, mut known) = (AtomicUsize::new(0), CeilingBracket::of(&engine(128), &[]));
        let asks = |known: &mut CeilingBracket, rung: i32| {
            let before = tried.load(Ordering::Relaxed);
            let passes = known.passes(rung, up_to(123, &tried));
            (passes, tried.load(Ordering::Relaxed) - before)
        };
        assert_eq!(asks(&mut known, 100), (Some(true), 1), "far above");
        assert_eq!(asks(&mut known, 110), (Some(true), 0));
        assert_eq!(asks(&mut known, 118), (Some(true), 2), "none passes far above");
        assert_eq!(asks(&mut known, 126), (Some(false), 1));
        assert_eq!(asks(&mut known, 140), (Some(false), 0));
        assert_eq!(known.known, Bracket { passed: Some(118), failed: Some(126) });
        assert_eq!(known.passes(122, |_| None), None, "nothing can be told");
        // A fit later the ends are tried first; a ceiling that moved is found all the same.
        known.refitted();
        for (at, passes, tries) in [(100, true, 1), (130, false, 1), (122, true, 1), (118, true, 0)] {
            assert_eq!(asks(&mut known, at), (Some(passes), tries), "rung {at}");
        }
        known.refitted();
        assert_eq!(known.passes(120, up_to(110, &tried)), Some(false));
        assert_eq!(known.passes(109, up_to(110, &tried)), Some(true));
    }

    #[test]
    fn a_first_guess_is_that_of_the_latest_engine_of_the_same_cap() {
        // Their steps took all that they may.
        let all_taken = Peaks { places: 1024, step_tokens: 512, kv_usage: 0.0 };
        let known = |cap: u32, passed: i32| CeilingBracket {
            known: Bracket { passed: Some(passed), failed: Some(passed + 1) },
            peaks: (all_taken, all_taken),
            ..CeilingBracket::of(&engine(cap), &[])
        };
        let all = [known(64, 100), known(64, 101), known(128, 120)];
        let guess = |cap: u32| CeilingBracket::of(&with_budget(cap, 4096), &all).guess.passed;
        assert_eq!((guess(64), guess(128), guess(32)), (Some(101), Some(120), Some(120)));
    }

    #[test]
    fn above_a_guess_that_was_too_low_no_step_is_tried_by_itself() {
        let tried = AtomicUsize::new(0);
        let guess = Bracket { passed: Some(99), failed: Some(100) };
        let mut known = CeilingBracket { guess, ..CeilingBracket::of(&engine(128), &[]) };
        for step in 0..10 {
            let _ = known.beyond(rate_of(100 + step * RUNGS_TO_A_STEP), up_to(140, &tried));
        }
        assert!(tried.load(Ordering::Relaxed) < 8, "{tried:?} replays for 10 steps");
    }

    #[test]
    fn a_search_upwards_answers_for_every_rate_on_the_way() {
        let tried = AtomicUsize::new(0);
        let mut known = CeilingBracket::of(&engine(128), &[]).searched_upwards(rate_of(112), up_to(123, &tried));
        let before = tried.swap(0, Ordering::Relaxed);
        let beyond = [112, 116, 120, 124, 128].map(|rung| known.beyond(rate_of(rung), up_to(0, &tried)).unwrap() > 0.0);
        assert_eq!(beyond, [false, false, false, true, true]);
        assert!(before > 2 && tried.into_inner() == 0, "{before} replays beforehand, and none later");
    }

    #[test]
    fn a_ceiling_is_found_to_a_rung_and_no_further_than_a_step_away() {
        for guess in [
            Bracket::default(),
            Bracket { passed: Some(123), failed: Some(124) },
            Bracket { passed: Some(99), failed: Some(100) },
            Bracket { passed: Some(126), failed: Some(127) },
        ] {
            let (tried, mut beyond) = (AtomicUsize::new(0), Vec::new());
            for at in [119, 122, 125, 128, 140, 100] {
                let mut known = CeilingBracket { guess, ..CeilingBracket::of(&engine(128), &[]) };
                let found = known.beyond(rate_of(at), up_to(123, &tried)).unwrap();
                beyond.push((found / STEP.ln() * f64::from(RUNGS_TO_A_STEP) * 10.0).round() / 10.0);
            }
            assert_eq!(beyond, [-4.0, -1.5, 1.5, 4.0, 4.0, -4.0], "after {guess:?}, {tried:?} replays");
        }
    }

    #[test]
    fn a_limit_that_held_nothing_back_changes_nothing() {
        let tried = AtomicUsize::new(0);
        let mut first = CeilingBracket::of(&engine(128), &[]);
        let _ = first.beyond(rate_of(122), up_to(123, &tried));
        let of = |cap: u32| CeilingBracket::of(&engine(cap), std::slice::from_ref(&first));
        for cap in [41, 256] {
            assert_eq!(of(cap).known, first.known, "{cap}");
        }
        assert_eq!(of(40).known, Bracket { failed: None, ..first.known }, "the cap may help");
        assert_eq!((of(20).known, of(20).guess), (Bracket::default(), first.known), "it may not");
        let budget = |budget: u32| CeilingBracket::of(&with_budget(128, budget), std::slice::from_ref(&first)).known;
        assert_eq!(
            budget(2048),
            Bracket { failed: None, ..first.known },
            "steps of 800 tokens where it failed, for 512"
        );
        assert_eq!(budget(401), Bracket { failed: None, ..first.known });
        assert_eq!(budget(400), Bracket::default(), "some step would have been larger");
        // After a fit the first of two such engines that is asked about answers for both.
        let mut all = [first.clone(), of(256)];
        all.iter_mut().for_each(CeilingBracket::refitted);
        let _ = all[1].beyond(rate_of(122), up_to(121, &tried));
        assert_eq!(CeilingBracket::of(&engine(128), &all).known, all[1].known);
        assert_eq!(CeilingBracket::of(&engine(512), &all).known, all[1].known);
    }
}
