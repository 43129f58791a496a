//! The memory: the highest share that starts and survives the load that needs most of it, where more of it can help at all.

use std::cmp::Ordering;

use tracing::debug;

use super::context::{BOTH_PROOFS, Context};
use super::predictor::NEVER_FULL;
use super::runner::RunnerError;
use super::trial::Asking;
use crate::journal::{Entry, Purpose};
use crate::rig::Rig;
use crate::search::HighestThatStarts;
use crate::verdict::{Awaited, Verdict};
use autotune_plan::engine::diagnosis::{Consequence, Diagnosis};
use autotune_plan::engine::{Quantity, dialect};
use autotune_plan::space::{self, Point, Value};
use autotune_records::units::{Rate, Seconds};

/// A soak takes every place of a batch, but no more than this ...
const MOST_SOAKED: u32 = 1024;
/// ... and no more than are answered in this time at the rate of the warm-up's burst, or than this where those are fewer. A full batch is faster.
const SOAKED: (Seconds, u32) = (Seconds(60.0), 64);
/// More memory may make a KV cache so many times as large: more than any share gives, but where weights take nearly all.
const ROOMY: u64 = 4;
/// Spaces of at most so many points, the memory aside, are compared with such a cache.
const MOST_COMPARED: usize = 128;

impl<R: Rig> Context<'_, R> {
    /// The share of the memory that a point has, where it is among what is tuned.
    pub fn share_of(&self, point: &Point) -> Point {
        let share = self.plan.tuned_memory().and_then(|knob| Some((&knob.name, point.get(&knob.name)?)));
        share.map_or(Point::default(), |(name, value)| Point::default().with(name, value.clone()))
    }

    /// Why more memory cannot raise the highest limit, where that of the baseline is thought to be this rate; `None` if it may.
    pub fn memory_suffices(&mut self, baseline: &Point, limit: Option<Rate>) -> Option<String> {
        baseline.get(&self.plan.tuned_memory()?.name)?;
        if let Some(fullest) = self.fullest().filter(|fullest| *fullest < NEVER_FULL) {
            let share = (fullest * 100.0).ceil();
            return Some(format!("the KV cache was never fuller than {share} %, so more of it cannot help"));
        }
        let least = self.plan.search.min_gain;
        let gain = self.gain_of_cache(baseline, limit?)?;
        let says =
            || format!("in simulation, a KV cache of {ROOMY} times the size gains less than {:.1} %", least * 100.0);
        (gain < least).then(says)
    }

    /// What a KV cache of [`ROOMY`] times the size gains, for the point that has the highest limit with it. It is how much lower the latency nearest
    /// to its promise lies, in logarithms. None where no twin judges, or the space is too large to compare all its points.
    fn gain_of_cache(&mut self, baseline: &Point, limit: Rate) -> Option<f64> {
        let twin = self.trial_runner.twin();
        let costs = twin.pooled_steps().filter(|_| twin.decides())?;
        let held = self.share_of(baseline);
        let mut points = space::candidates(&self.plan.space, &held, MOST_COMPARED + 1, self.seed);
        if points.len() > MOST_COMPARED {
            return None;
        }
        points.insert(0, baseline.clone());
        let mut predictor = self.predictor(0);
        let (point, limit) = predictor.best_with_cache(&points, &costs, limit, ROOMY)?;
        let own = predictor.predictions.engine(&point)?;
        let roomy = own.with_cache(ROOMY);
        let relief = predictor.relief([&own, &roomy], &costs, limit)?;
        debug!(%point, %limit, relief, "a larger KV cache");
        Some(relief)
    }

    /// Finds the highest share of the memory that starts and survives a full batch with the most demanding other values. Later trials keep it.
    pub async fn memory(&mut self, baseline: &Point) -> Result<Point, RunnerError> {
        let Some(knob) = self.plan.tuned_memory() else { return Ok(Point::default()) };
        let name = knob.name.as_str();
        let default = baseline.get(name).cloned();
        let corner = self.hungriest(baseline);
        let mut search = HighestThatStarts::new(knob.values.clone());
        let (mut stuck, mut tried) = (None, false);
        while let Some(value) = search.next().filter(|_| stuck.is_none()) {
            // It ends the engine that could prove the defaults without a launch of their own.
            let launches = if self.serves_defaults() { 2.0 } else { 1.0 };
            let (price, to_come) = (self.prices().launch * launches, BOTH_PROOFS);
            if !self.affords(price, to_come) {
                let why = self.budget_too_small(price, to_come);
                self.left_out(format!("a larger memory share: {why}"));
                break;
            }
            tried = true;
            match self.trial_runner.launch(Purpose::Memory, corner.with(name, value.clone())).await? {
                Ok(_) => {
                    self.started = true;
                    match self.send_burst(self.soak(&corner)).await? {
                        soaked if survived(&soaked) => search.tell(&value, true),
                        soaked => search.lacks(&value, soaked.err().and_then(|diagnosis| diagnosis.missing_share())),
                    }
                }
                Err(diagnosis) => match diagnosis.consequence {
                    Consequence::MemoryBound => search.lacks(&value, diagnosis.missing_share()),
                    Consequence::NeedsMoreMemory => search.too_low(&value),
                    _ => stuck = Some(diagnosis.says),
                },
            }
        }
        if let Some(says) = stuck {
            self.note(&format!("no other memory share is tried: {says}"));
        }
        let found = search.found().cloned();
        // The default is known to start at the defaults, whatever the hungriest corner does.
        let is_less =
            |found: &Value| default.as_ref().and_then(|default| found.compare(default)) == Some(Ordering::Less);
        let best = found.filter(|found| !is_less(found)).or(default);
        if let Some(best) = best.as_ref().filter(|_| tried) {
            self.note(&format!("memory: {name} {best} is kept in all further trials"));
        }
        Ok(best.map_or(Point::default(), |best| Point::default().with(name, best)))
    }

    /// The baseline with every parameter that costs memory at its largest, where the constraints admit that.
    fn hungriest(&self, baseline: &Point) -> Point {
        let largest = self.plan.space.parameters.iter().filter(|p| Quantity::of(&p.name).is_some());
        let corner = largest.fold(baseline.clone(), |point, p| match p.values.last() {
            Some(value) => point.with(&p.name, value.clone()),
            None => point,
        });
        let corner = self.plan.space.settled(corner);
        if self.plan.space.admits(&corner) { corner } else { baseline.clone() }
    }

    /// The load that takes most memory of a point's engine. Every place of its batch is taken at once: each answer has begun.
    pub fn soak(&self, point: &Point) -> Asking {
        let flag = dialect(self.plan.engine.kind).flag(Quantity::Sequences);
        let places = flag.and_then(|flag| point.get(flag)).and_then(Value::number).map_or(MOST_SOAKED, |n| n as u32);
        let burst = self.trial_runner.passed().iter().rev().find_map(Entry::ready).map(|r| r.warmed.burst_rate.0);
        let (time, at_least) = SOAKED;
        let in_time = (burst.unwrap_or(0.0) * time.0) as u32;
        let count = places.min(in_time.max(at_least)).min(MOST_SOAKED);
        self.at_once(count, Awaited::Begun)
    }
}

/// Whether an engine survived a soak: whatever else became of it, its memory sufficed.
pub fn survived(answer: &Result<Verdict, Diagnosis>) -> bool {
    answer.as_ref().err().is_none_or(|diagnosis| diagnosis.consequence != Consequence::MemoryBound)
}
