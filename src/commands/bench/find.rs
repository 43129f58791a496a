//! `bench --find`: short windows at levels that the search asks for, until the limit is known or the time is over.

use std::time::Instant;

use super::super::Failed;
use super::super::load::{CERTAINTY, Load, Traffic, seen};
use super::ladder::content_seed;
use crate::cli::{BenchArgs, Sought};
use crate::clock;
use crate::levels::{Found, LevelSearch, LevelWindow, NextLevel, Range, Root};
use crate::report::bench::{Finding, Known, Level, Offered, Standing, Summary};
use crate::rig::Warmed;
use crate::settings::Limit;
use crate::units::{Rate, Seconds};
use crate::verdict::{Counter, Course, Outcome, Slack, Verdict, Window, judge};
use crate::workload;

/// The shortest window, where the flags say nothing else.
const SHORTEST: f64 = 10.0;
/// Windows near the limit are so many times as long.
const NEAR: f64 = 2.0;
/// Windows become longer by so much at most, so that enough requests lie beyond a quantile.
const LONGEST: f64 = 8.0;
/// Requests beyond the quantile that a window is made long enough for, far from the limit and near it.
const BEYOND: (f64, f64) = (2.0, 5.0);
/// A window ends early at so many times the violations that its limits absorb: beyond that nothing is left to learn near the limit.
const SLACK: Slack = Slack(4.0);
/// The ramp is an answer long, within these shares of the window.
const RAMP: (f64, f64) = (0.1, 0.5);
/// Levels in which our own client was too slow, after which the search gives up.
const MOST_VOID: usize = 3;
/// Users of the first level.
const FIRST_USERS: f64 = 8.0;
/// The first rate, as a share of what the warm-up's burst was answered with.
const FIRST_RATE: f64 = 0.5;
const PRECISION: f64 = 0.04;
const BUDGET: Seconds = Seconds(600.0);

/// A search under way.
pub(super) struct Finder<'a> {
    args: &'a BenchArgs,
    targets: &'a [Vec<Limit>],
    sought: Sought,
    range: Range,
    warmed: Warmed,
    mean_output: f64,
    begun: Instant,
    /// What the levels said, for each target.
    windows: Vec<Vec<LevelWindow>>,
    /// Why a target cannot be answered, where its limits need more requests than come.
    too_few: Vec<Option<String>>,
    /// The most requests per second that one user was seen to make.
    per_user: f64,
    levels: usize,
    void: usize,
    is_over: bool,
}

/// The levels that may be tried.
pub(super) fn range(args: &BenchArgs, sought: Sought) -> Result<Range, Failed> {
    let whole = sought == Sought::Users;
    let (lowest, highest) = if whole { (1.0, 1000.0) } else { (0.01, 1000.0) };
    let wrong = || {
        let example = if whole { "1,200, at most 100000" } else { "0.5,40, at most 1000000" };
        Failed::usage(format!("error: --between takes the lowest and the highest level, such as {example}"))
    };
    let Some(text) = &args.between else { return Ok(Range { lowest, highest, whole }) };
    let (lowest, highest) = text.split_once(',').ok_or_else(wrong)?;
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|n| n.is_finite());
    let (lowest, highest) = number(lowest).zip(number(highest)).ok_or_else(wrong)?;
    let most = if whole { 1e5 } else { 1e6 };
    let fits = lowest > 0.0 && lowest < highest && highest <= most;
    let counts = !whole || (lowest.fract() == 0.0 && highest.fract() == 0.0);
    if fits && counts { Ok(Range { lowest, highest, whole }) } else { Err(wrong()) }
}

impl<'a> Finder<'a> {
    pub(super) fn new(
        args: &'a BenchArgs,
        traffic: &'a Traffic,
        (sought, range): (Sought, Range),
        warmed: Warmed,
        mean_output: f64,
    ) -> Self {
        let targets = &traffic.targets;
        let per_user = 1.0 / (warmed.answer_time.0 + args.load.think.unwrap_or_default().as_secs_f64()).max(1e-3);
        Self {
            args,
            targets,
            sought,
            range,
            warmed,
            mean_output,
            begun: clock::now(),
            windows: vec![Vec::new(); targets.len()],
            too_few: vec![None; targets.len()],
            per_user,
            levels: 0,
            void: 0,
            is_over: false,
        }
    }

    fn search(&self, target: usize) -> LevelSearch<'_> {
        let first = match self.sought {
            Sought::Users => FIRST_USERS,
            Sought::Rate => self.warmed.burst_rate.0 * FIRST_RATE,
        };
        LevelSearch::new(self.range, first, self.args.precision.unwrap_or(PRECISION), &self.windows[target])
    }

    /// The next level; `None` if everything is known that can be, or the time is over.
    pub(super) fn next(&mut self) -> Result<Option<Load>, Failed> {
        if self.void >= MOST_VOID {
            let says = "error: our own client was too slow in three levels, so no limit can be told: give it more cores, or a machine of its own";
            return Err(Failed::own(says));
        }
        for target in 0..self.targets.len() {
            let asked = if self.too_few[target].is_some() { NextLevel::Enough } else { self.search(target).next() };
            let NextLevel::Try { level, near } = asked else { continue };
            let window = self.window(level, near);
            if near && let Some(why) = self.too_few(target, level, window.length()) {
                self.too_few[target] = Some(why);
                continue;
            }
            if self.elapsed() >= self.args.budget.map_or(BUDGET, Seconds::from) {
                self.is_over = true;
                return Ok(None);
            }
            return Ok(Some(self.load(level, window)));
        }
        Ok(None)
    }

    fn elapsed(&self) -> Seconds {
        self.begun.elapsed().into()
    }

    /// Requests per second that a level is expected to make.
    fn expected(&self, level: f64) -> Rate {
        match self.sought {
            Sought::Users => Rate(level * self.per_user),
            Sought::Rate => Rate(level),
        }
    }

    /// Long enough for the quantiles of the limits.
    fn window(&self, level: f64, near: bool) -> Window {
        let shortest = self.args.duration.map_or(SHORTEST, |d| d.as_secs_f64());
        let (least, beyond) = if near { (shortest * NEAR, BEYOND.1) } else { (shortest, BEYOND.0) };
        let rarest = self.targets.iter().flatten().map(|limit| 1.0 - limit.quantile).fold(1.0, f64::min);
        let length = (beyond / rarest / self.expected(level).0).clamp(least, shortest * LONGEST);
        let ramp = self.warmed.answer_time.0.clamp(RAMP.0 * length, RAMP.1 * length);
        let from = self.args.load.ramp.map_or(ramp, |ramp| ramp.as_secs_f64());
        Window { from: Seconds(from), to: Seconds(from + length) }
    }

    /// Why windows of that length say nothing of a target's quantiles.
    fn too_few(&self, target: usize, level: f64, length: Seconds) -> Option<String> {
        let requests = self.expected(level).0 * length.0;
        let too_few = |limit: &&Limit| requests * (1.0 - limit.quantile) < 1.0;
        let limit = self.targets[target].iter().filter(too_few).max_by(|a, b| a.quantile.total_cmp(&b.quantile))?;
        let needs = (1.0 / (1.0 - limit.quantile)).ceil();
        let longer = Seconds((needs / self.expected(level).0 / NEAR).ceil());
        let at = self.offered(level);
        Some(format!(
            "a window of {length} at {at} holds about {requests:.0} requests, and {} says nothing with fewer than {needs}: --duration {:.0}s gives enough, or a lower percentile",
            limit.key(),
            longer.0
        ))
    }

    fn offered(&self, level: f64) -> Offered {
        match self.sought {
            Sought::Users => Offered::Users(level as u32),
            Sought::Rate => Offered::Rate(Rate(level)),
        }
    }

    /// A level without its unit.
    fn sized(&self, level: f64) -> String {
        let text = self.offered(level).to_string();
        text.split(' ').next().unwrap_or_default().to_owned()
    }

    fn load(&self, level: f64, window: Window) -> Load {
        // Windows are to err independently: each has arrivals of its own.
        let arrival_seed = workload::mix(self.args.load.seed, &[1, self.levels as u64]);
        // Whatever users do at most, a limit is broken for certain only beyond what that many requests absorb.
        let most = self.expected(level) * if self.levels == 0 && self.sought == Sought::Users { 2.0 } else { 1.0 };
        let counter = self.targets.last().map(|loosest| Counter::new(loosest, window, most, self.mean_output, SLACK));
        Load {
            offered: self.offered(level),
            window,
            arrival_seed,
            content_seed: content_seed(self.args, self.levels),
            answer_time: None,
            first_place: None,
            counter,
        }
    }

    /// Takes what a level said; returns it in a line.
    pub(super) fn told(&mut self, level: &Level, summary: &Summary) -> String {
        self.levels += 1;
        let size = level.offered.size().unwrap_or(0.0);
        if let (Offered::Users(users), Some(rate)) = (level.offered, summary.offered_rate) {
            // More users wait longer, so nobody asks more often than the user of a smaller level did.
            let seen = rate.0 / f64::from(users.max(1));
            self.per_user = if self.levels == 1 && seen > 0.0 { seen } else { self.per_user.max(seen) };
        }
        if summary.standing == Standing::Void {
            self.void += 1;
        }
        if matches!(summary.standing, Standing::Void | Standing::Partial) {
            return format!("{} is void: {}", level.offered, summary.because.as_deref().unwrap_or_default());
        }
        let complete = level.verdict.as_ref().is_some_and(|verdict| verdict.complete);
        let course = Course { complete, ..level.course(level.window) };
        let failed = matches!(summary.standing, Standing::Saturated | Standing::Errors);
        for (windows, limits) in self.windows.iter_mut().zip(self.targets) {
            let verdict = judge(&level.records, limits, course, &level.client, CERTAINTY);
            windows.push(LevelWindow { level: size, limits: seen(&verdict, failed) });
        }
        let holds = matches!(level.offered, Offered::Rate(_) | Offered::Users(1));
        let (keeps, breaks) = if holds { ("holds", "fails") } else { ("hold", "fail") };
        let verdict = level.verdict.as_ref();
        let binding = verdict.and_then(Verdict::binding_limit);
        let what = match (failed, binding) {
            (false, Some(limit)) => limit.beside_its_limit(),
            _ => summary.because.clone().unwrap_or_default(),
        };
        let known = match self.search(self.targets.len() - 1).found() {
            Found::Root(Root { level, from, to, .. }) if self.targets.len() == 1 => {
                format!("; the limit is about {} ({} to {})", self.offered(level), self.sized(from), self.sized(to))
            }
            _ => String::new(),
        };
        let kept = !failed && verdict.is_some_and(|v| v.outcome == Outcome::Pass);
        format!("{} {}: {what}{known}", level.offered, if kept { keeps } else { breaks })
    }

    /// What was found, with the levels that show it.
    pub(super) fn finding(&self, measured: &[(Level, Summary)]) -> Option<Finding> {
        let (first, _) = measured.first()?;
        let levels: Vec<Summary> = measured.iter().map(|(_, summary)| summary.clone()).collect();
        let known: Vec<(&[Limit], Known)> =
            self.targets.iter().enumerate().map(|(target, limits)| (limits.as_slice(), self.known(target))).collect();
        let unit = match self.sought {
            Sought::Users => Offered::Users(0),
            Sought::Rate => Offered::Rate(Rate(0.0)),
        };
        let between = (self.range.lowest, self.range.highest);
        Some(Finding::of(first.meta.clone(), unit, between, self.elapsed(), &known, levels))
    }

    /// Why the search ended before it knew enough.
    fn cut_short(&self) -> &'static str {
        let enough = |target: usize| self.search(target).next() == NextLevel::Enough;
        match self.is_over {
            true => "the time of --budget was over",
            false if self.void >= MOST_VOID => "our own client was too slow",
            false if (0..self.targets.len()).all(enough) => {
                "windows scatter too much, and longer ones (--duration) scatter less"
            }
            false => "the search was interrupted",
        }
    }

    fn known(&self, target: usize) -> Known {
        match (self.search(target).found(), &self.too_few[target]) {
            (_, Some(why)) => Known::TooFewRequests(why.clone()),
            (Found::Root(root), None) => {
                let cut_short = (!self.search(target).is_precise(&root)).then(|| self.cut_short());
                let Root { level, from, to, binding, .. } = root;
                Known::Found { level, from, to, binding, cut_short }
            }
            (Found::NothingKept, None) => Known::NothingKept(self.range.lowest),
            (Found::AllKept, None) => Known::AllKept(self.range.highest),
            (Found::NotBracketed, None) => Known::NotBracketed(self.cut_short()),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn between(flags: &str) -> Result<Range, String> {
        let words = ["autotune", "bench", "--url", "http://127.0.0.1:1"].into_iter().chain(flags.split_whitespace());
        let Some(Command::Bench(args)) = Cli::try_parse_from(words).unwrap().command else { panic!("it is a bench") };
        range(&args, args.find.unwrap()).map_err(|failed| failed.message)
    }

    #[test]
    fn the_range_is_two_levels_of_which_the_first_is_lower() {
        assert_eq!(between("--find users"), Ok(Range { lowest: 1.0, highest: 1000.0, whole: true }));
        assert_eq!(between("--find rate --between 0.5,7"), Ok(Range { lowest: 0.5, highest: 7.0, whole: false }));
        for wrong in ["5", "0,4", "8,4", "1,nan", "1,1e9", "1.5,8"] {
            let says = between(&format!("--find users --between {wrong}")).unwrap_err();
            assert!(says.contains("--between takes the lowest and the highest level, such as 1,200"), "{says}");
        }
    }
}
