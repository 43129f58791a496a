//! One side at one level: its windows of all sweeps together.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::levels::{LevelWindow, LimitSeen, of_pairs};
use crate::load::RequestRecord;
use crate::report::bench::{Level, Spread, Standing, Summary};
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
    turns: Vec<TurnOf>,
    /// The shares of requests by replica, the busiest first; empty if the server does not tell them apart.
    replica_shares: Vec<f64>,
}

/// A request of a conversation.
#[derive(Clone, Copy, Debug)]
struct TurnOf {
    turn: u32,
    ttft: Option<f64>,
    /// Prompt tokens, and those that were cached, where the engine tells both.
    prompt: Option<(u32, u32)>,
}

impl WindowSeen {
    /// `requests` are those of each replica since the start, before the window and after it.
    pub fn of(
        sweep: u32,
        side: usize,
        level: &Level,
        summary: Summary,
        seen: Vec<LimitSeen>,
        requests: [&BTreeMap<String, f64>; 2],
    ) -> Self {
        let window = level.filled_window();
        let whole = || level.records.iter().filter(|r| window.holds(r.due) && r.complete());
        let of = |latency: fn(&RequestRecord) -> Option<Seconds>| whole().filter_map(latency).map(|l| l.0).collect();
        // A client that was too slow says nothing of the server.
        let seen = if summary.standing == Standing::Void { vec![LimitSeen::Unknown; seen.len()] } else { seen };
        let turn = |r: &RequestRecord| {
            let (_, turn) = r.turn?;
            Some(TurnOf { turn: turn + 1, ttft: r.ttft().map(|t| t.0), prompt: r.tokens_in.zip(r.tokens_cached) })
        };
        Self {
            sweep,
            side,
            ttft: of(RequestRecord::ttft),
            tpot: of(RequestRecord::tpot),
            turns: whole().filter_map(turn).collect(),
            replica_shares: shares(requests),
            summary,
            seen,
        }
    }

    pub(super) fn size(&self) -> f64 {
        self.summary.offered.size().unwrap_or(0.0)
    }

    pub(super) fn level_window(&self) -> LevelWindow {
        LevelWindow { level: self.size(), limits: self.seen.clone() }
    }

    /// The logarithm of the quantile of the limit in that place, with its standard error.
    pub(super) fn log_quantile(&self, place: usize) -> Option<(f64, f64)> {
        let limit = self.summary.verdict.as_ref()?.limits.get(place)?;
        match self.seen.get(place)? {
            LimitSeen::Margin(_, error) => Some((limit.measured?.0.max(1e-6).ln(), *error)),
            LimitSeen::Broken | LimitSeen::Unknown => None,
        }
    }

    /// The limit that the window broke, as far as it is known which.
    fn broke(&self) -> Option<&str> {
        let verdict = self.summary.verdict.as_ref()?;
        let of_binding = verdict.limits.iter().zip(&self.seen).filter(|(_, seen)| seen.broken());
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
    /// Tokens that one step gives on average, where drafts are speculated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acceptance_length: Option<f64>,
    /// The windows that broke a limit, by the limit.
    pub broke: BTreeMap<String, u32>,
    /// The quantile of each limit.
    #[serde(default)]
    pub quantiles: BTreeMap<String, Quantile>,
    /// By the turn of a conversation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<TurnSeen>,
    /// The share of requests that each replica had, the busiest first; empty if the servers do not tell them apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replica_shares: Vec<f64>,
}

/// The quantile of a limit over the sweeps, with its interval at the file's `confidence`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quantile {
    pub value: Seconds,
    pub from: Seconds,
    pub to: Seconds,
}

/// The requests of one turn of conversations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TurnSeen {
    /// The first is 1.
    pub turn: u32,
    pub ttft: Spread,
    /// The share of prompt tokens that the prefix cache held, 0 to 1.
    pub cached_share: Option<f64>,
}

/// What share of the requests between two readings each replica had, the busiest first; `None` if one told nothing before.
fn shares([before, after]: [&BTreeMap<String, f64>; 2]) -> Vec<f64> {
    let rise = |(name, count): (&String, &f64)| Some((count - before.get(name)?).max(0.0));
    let Some(mut shares) = after.iter().map(rise).collect::<Option<Vec<f64>>>() else { return Vec::new() };
    let all: f64 = shares.iter().sum();
    if shares.len() < 2 || all <= 0.0 {
        return Vec::new();
    }
    shares.iter_mut().for_each(|share| *share /= all);
    shares.sort_by(|a, b| b.total_cmp(a));
    shares
}

/// The windows' requests by turn.
fn turns(windows: &[&WindowSeen]) -> Vec<TurnSeen> {
    let mut by_turn: BTreeMap<u32, Vec<TurnOf>> = BTreeMap::new();
    for turn in windows.iter().flat_map(|w| &w.turns) {
        by_turn.entry(turn.turn).or_default().push(*turn);
    }
    let seen = |(turn, all): (u32, Vec<TurnOf>)| {
        let (prompt, cached) = all
            .iter()
            .filter_map(|t| t.prompt)
            .fold((0_u64, 0_u64), |(prompt, cached), of| (prompt + u64::from(of.0), cached + u64::from(of.1)));
        let cached_share = (prompt > 0).then(|| cached as f64 / prompt as f64);
        Some(TurnSeen { turn, ttft: Spread::of(all.iter().filter_map(|t| t.ttft))?, cached_share })
    };
    by_turn.into_iter().filter_map(seen).collect()
}

/// The mean of what windows with as many replicas say, by rank.
fn replica_shares(windows: &[&WindowSeen]) -> Vec<f64> {
    let most = windows.iter().map(|w| w.replica_shares.len()).max().unwrap_or(0);
    let told: Vec<&Vec<f64>> = windows.iter().map(|w| &w.replica_shares).filter(|s| s.len() == most).collect();
    (0..most).map(|rank| told.iter().map(|shares| shares[rank]).sum::<f64>() / told.len() as f64).collect()
}

/// The quantile of the limit in that place over the windows.
fn quantile(windows: &[&WindowSeen], place: usize) -> Option<Quantile> {
    let logs: Vec<(f64, f64)> = windows.iter().filter_map(|w| w.log_quantile(place)).collect();
    let (values, squares): (Vec<f64>, Vec<f64>) = logs.into_iter().map(|(log, error)| (log, error * error)).unzip();
    if values.is_empty() {
        return None;
    }
    let estimate = of_pairs(&values, crate::spread::mean(&squares).sqrt())?;
    let (from, to) = estimate.interval();
    let [value, from, to] = [estimate.log, from, to].map(|log| Seconds(log.exp()));
    Some(Quantile { value, from, to })
}

impl Cell {
    pub(super) fn of(windows: &[&WindowSeen]) -> Self {
        let sum = |count: fn(&Summary) -> u64| windows.iter().map(|w| count(&w.summary)).sum();
        let mean = |value: fn(&Summary) -> Option<f64>| {
            let told: Vec<f64> = windows.iter().filter_map(|w| value(&w.summary)).collect();
            (!told.is_empty()).then(|| crate::spread::mean(&told))
        };
        let verdict = windows.iter().find_map(|w| w.summary.verdict.as_ref());
        let keys: Vec<String> = verdict.into_iter().flat_map(|v| &v.limits).map(|limit| limit.key.clone()).collect();
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
            quantiles: keys.into_iter().enumerate().filter_map(|(i, key)| Some((key, quantile(windows, i)?))).collect(),
            turns: turns(windows),
            replica_shares: replica_shares(windows),
        }
    }

    /// In a word: it holds, which limit breaks, or how many windows broke one.
    pub(in crate::report) fn breaks(&self) -> String {
        let all: u32 = self.broke.values().sum();
        match self.broke.iter().max_by_key(|(_, count)| **count) {
            None => "holds".to_owned(),
            Some((key, _)) if all * 2 > self.windows => key.clone(),
            Some(_) => format!("{all} of {}", self.windows),
        }
    }
}
