//! What a session expects of points before they are launched: what the fitted twin says of them, and what finding out costs.
//!
//! Points that the twin cannot tell apart are replayed once: where the cap on sequences never held a request back, a larger one changes
//! nothing, and where the KV cache never filled, neither does a larger cache.

use std::collections::HashMap;

use super::cost::Prices;
use super::endurance::{Reach, endure};
use super::pairing::{ENDLESS, Engine, Pairing, promises_waiting};
use crate::engine::MEMORY_KNOB;
use crate::search::Expectation;
use crate::settings::{Limit, Metric, Plan};
use crate::space::{Point, Value};
use crate::twin::{Bounds, FastReplay, StepCosts, Strain};
use crate::units::{Rate, Seconds};
use crate::verdict::paired::Long;
use crate::workload::{Material, Outline};

/// Requests of a replay that maps a point: fewer than where a verdict hangs on them, since all points see the same requests and what these
/// have in common, the process corrects.
const MAPPED: usize = if cfg!(test) { 2_000 } else { 12_000 };

/// What is remembered from question to question.
#[derive(Default)]
pub(super) struct Outlook {
    /// What the engines of launched points say of themselves.
    launched: Vec<(Point, Engine)>,
    /// The number of the fit that the rest is of.
    fits: u64,
    traffic: HashMap<u64, Vec<Outline>>,
    replayed: HashMap<(u64, u32, bool), Vec<Replayed>>,
    memory: FastReplay,
}

struct Replayed {
    bounds: Bounds,
    strain: Strain,
    margins: Vec<Option<f64>>,
}

impl Replayed {
    /// Whether an engine with these bounds would have served the same requests in the same way.
    fn is_the_same(&self, bounds: Bounds) -> bool {
        let kv = |b: Bounds| b.kv_tokens.unwrap_or(u64::MAX);
        let filled = self.strain.kv_full > 0 || self.strain.preemptions > 0;
        let same_seqs = self.bounds.max_num_seqs == bounds.max_num_seqs
            || (self.strain.seqs_full == 0 && u64::from(bounds.max_num_seqs) >= self.strain.most_running);
        same_seqs && (kv(self.bounds) == kv(bounds) || (!filled && kv(bounds) >= kv(self.bounds)))
    }
}

impl Outlook {
    /// Takes note of an engine that serves.
    pub(super) fn learn(&mut self, point: &Point, engine: Option<Engine>) {
        self.launched.extend(engine.map(|engine| (point.clone(), engine)));
    }

    /// The engine of a point: that of the launched point which is most like it, with its own values. What the KV cache of a point holds
    /// that was never launched is taken from there.
    fn engine(&self, point: &Point) -> Option<Engine> {
        let differs = |other: &Point| {
            let same = |name: &String, value: &Value| other.get(name).is_some_and(|theirs| theirs.same(value));
            // Nothing changes the cache as much as the share of the memory.
            let weight = |name: &String| if name == MEMORY_KNOB { 100 } else { 1 };
            point.0.iter().filter(|(name, value)| !same(name, value)).map(|(name, _)| weight(name)).sum::<u32>()
        };
        self.launched.iter().rev().min_by_key(|(other, _)| differs(other)).map(|(_, engine)| engine.at(point))
    }
}

/// The expectation of a moment.
pub(super) struct Foresight<'a> {
    pub(super) plan: &'a Plan,
    pub(super) material: &'a Material,
    pub(super) seed: u64,
    pub(super) pairing: &'a mut Pairing,
    pub(super) outlook: &'a mut Outlook,
    pub(super) prices: Prices,
    /// The point of the engine that runs.
    pub(super) running: Option<&'a Point>,
}

impl Foresight<'_> {
    /// What very many requests at a rate make of a point's engine, by all that is known of its steps, what certifies included; none where
    /// there is no twin.
    pub(super) fn reach(&self, point: &Point, costs: &StepCosts, rate: Rate) -> Option<Reach> {
        endure(self.plan, (self.material, self.seed), &self.outlook.engine(point)?, costs, rate)
    }
}

impl Expectation for Foresight<'_> {
    fn margins(&mut self, point: &Point, rate: Rate) -> Vec<Option<f64>> {
        let Some((costs, fits)) = self.pairing.known().map(|(costs, fits)| (*costs, fits)) else { return Vec::new() };
        if self.outlook.fits != fits {
            self.outlook.fits = fits;
            self.outlook.replayed.clear();
            self.outlook.traffic.clear();
        }
        let Some(engine) = self.outlook.engine(point) else { return Vec::new() };
        let Outlook { traffic, replayed, memory, .. } = self.outlook;
        let bounds = engine.bounds();
        let known = replayed.entry((rate.0.to_bits(), bounds.max_num_batched_tokens, engine.reuses())).or_default();
        if let Some(same) = known.iter().find(|r| r.is_the_same(bounds)) {
            return same.margins.clone();
        }
        let outlines = match traffic.entry(rate.0.to_bits()) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                let drawn = self.pairing.traffic(self.plan, (self.material, self.seed), rate, MAPPED);
                entry.insert(drawn.unwrap_or_default())
            }
        };
        let sent: Vec<_> = outlines.iter().map(|o| engine.sent(o)).collect();
        let (long, strain) = Long::by_sums(&costs, bounds, &sent, memory);
        // Where no promise is about waiting, a queue that grows without end breaks them all.
        let endless = if promises_waiting(self.plan) { None } else { long.log_of(Metric::Ttft, ENDLESS.0) };
        let queue = endless.map_or(f64::NEG_INFINITY, |log| log - ENDLESS.1.ln());
        let margin = |l: &Limit| Some((long.log_of(l.metric, l.quantile)? - l.at_most.0.ln()).max(queue));
        let margins: Vec<Option<f64>> = self.plan.slo.iter().map(margin).collect();
        known.push(Replayed { bounds, strain, margins: margins.clone() });
        margins
    }

    fn runs(&self, point: &Point) -> bool {
        self.running == Some(point)
    }

    fn price(&self, rate: Rate, fresh: bool) -> Seconds {
        self.prices.probe(super::session::window(self.plan, rate).to, fresh)
    }
}
