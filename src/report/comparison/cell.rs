//! One side at one level: its windows of all sweeps together.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::load::RequestRecord;
use crate::report::bench::{Level, Spread, Standing, Summary};
use crate::search::{LevelWindow, LimitSeen};
use crate::units::{Rate, Seconds, TokenRate};

/// One window of a side.
#[derive(Clone, Debug)]
pub struct WindowSeen {
    pub sweep: u32,
    /// 0 is A, 1 is B.
    pub side: usize,
    pub summary: Summary,
    /// What it says of each limit, in their order.
    pub seen: Vec<LimitSeen>,
    ttft: Vec<f64>,
    tpot: Vec<f64>,
}

impl WindowSeen {
    pub fn of(sweep: u32, side: usize, level: &Level, summary: Summary, seen: Vec<LimitSeen>) -> Self {
        let window = level.filled_window();
        let whole = || level.records.iter().filter(|r| window.holds(r.due) && r.complete());
        let of = |latency: fn(&RequestRecord) -> Option<Seconds>| whole().filter_map(latency).map(|l| l.0).collect();
        // A client that was too slow says nothing of the server.
        let seen = if summary.standing == Standing::Void { vec![LimitSeen::Unknown; seen.len()] } else { seen };
        Self { sweep, side, ttft: of(RequestRecord::ttft), tpot: of(RequestRecord::tpot), summary, seen }
    }

    pub(super) fn size(&self) -> f64 {
        self.summary.offered.size().unwrap_or(0.0)
    }

    pub(super) fn level_window(&self) -> LevelWindow {
        LevelWindow { level: self.size(), limits: self.seen.clone() }
    }

    /// The limit that the window broke, as far as it is known which.
    fn broke(&self) -> Option<&str> {
        let verdict = self.summary.verdict.as_ref()?;
        let broken = |seen: &LimitSeen| match seen {
            LimitSeen::Margin(margin, _) => *margin > 0.0,
            LimitSeen::Broken => true,
            LimitSeen::Unknown => false,
        };
        let of_binding = verdict.limits.iter().zip(&self.seen).filter(|(_, seen)| broken(seen));
        let binding = of_binding.clone().find(|(limit, _)| Some(&limit.key) == verdict.binding.as_ref());
        binding.or_else(|| of_binding.clone().next()).map(|(limit, _)| limit.key.as_str())
    }
}

/// The windows of a side at a level: quantiles are those of all their requests, rates and shares the means of the windows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    pub windows: u32,
    /// Requests with a whole answer.
    pub completed: u64,
    pub failed: u64,
    /// Those without a whole answer, by class.
    pub errors: BTreeMap<String, u64>,
    pub ttft: Option<Spread>,
    pub tpot: Option<Spread>,
    pub achieved_rate: Option<Rate>,
    pub output_throughput: Option<TokenRate>,
    /// The share of prompt tokens that the prefix cache held, 0 to 1.
    pub cached_share: Option<f64>,
    /// Of speculative decoding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acceptance_length: Option<f64>,
    /// The windows that broke a limit, by the limit.
    pub broke: BTreeMap<String, u32>,
}

impl Cell {
    pub(super) fn of(windows: &[&WindowSeen]) -> Self {
        let sum = |count: fn(&Summary) -> u64| windows.iter().map(|w| count(&w.summary)).sum();
        let mean = |value: fn(&Summary) -> Option<f64>| {
            let told: Vec<f64> = windows.iter().filter_map(|w| value(&w.summary)).collect();
            (!told.is_empty()).then(|| crate::spread::mean(&told))
        };
        let mut errors = BTreeMap::new();
        for (class, count) in windows.iter().flat_map(|w| &w.summary.errors) {
            *errors.entry(class.clone()).or_insert(0) += count;
        }
        let mut broke = BTreeMap::new();
        for key in windows.iter().filter_map(|w| w.broke()) {
            *broke.entry(key.to_owned()).or_insert(0) += 1;
        }
        Self {
            windows: windows.len() as u32,
            completed: sum(|s| s.completed),
            failed: sum(|s| s.failed),
            errors,
            ttft: Spread::of(windows.iter().flat_map(|w| w.ttft.iter().copied())),
            tpot: Spread::of(windows.iter().flat_map(|w| w.tpot.iter().copied())),
            achieved_rate: mean(|s| s.achieved_rate.map(|r| r.0)).map(Rate),
            output_throughput: mean(|s| s.output_throughput.map(|r| r.0)).map(TokenRate),
            cached_share: mean(|s| s.cache.measured_share),
            acceptance_length: mean(|s| s.telemetry.acceptance_length),
            broke,
        }
    }

    /// In a word: it holds, which limit breaks, or how many windows broke one.
    pub(super) fn breaks(&self) -> String {
        let all: u32 = self.broke.values().sum();
        match self.broke.iter().max_by_key(|(_, count)| **count) {
            None => "holds".to_owned(),
            Some((key, _)) if all * 2 > self.windows => key.clone(),
            Some(_) => format!("{all} of {}", self.windows),
        }
    }
}
