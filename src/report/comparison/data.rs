//! Everything that a comparison found: `compare.json`, version 1 of a public format.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::answer;
use super::cell::{Cell, WindowSeen};
use super::setup::{Differing, Facts};
use super::{NAMES, VERSION};
use crate::levels::{CONFIDENCE, Estimate, Found, LevelSearch, LevelWindow, Range, Root, of_limits, of_pairs};
use crate::report::bench::find::Levels;
use crate::report::bench::{Answer, Known, Offered, Status, Summary};
use crate::settings::Limit;
use crate::units::Seconds;

/// What was measured, as the command hands it over.
pub struct Seen {
    pub workload: String,
    pub seed: u64,
    /// What the windows took, with all that lies between them.
    pub seconds: Seconds,
    pub limits: Vec<Limit>,
    /// The levels that were asked for.
    pub levels: Vec<Offered>,
    pub sides: [SideSeen; 2],
    /// The windows of whole sweeps.
    pub windows: Vec<WindowSeen>,
    pub equal_within: Option<f64>,
    /// What a reader must know of prompts of a file that came again; `None` if none did.
    pub sent_again: Option<String>,
}

/// A side, as it was reached or launched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SideSeen {
    /// Its address, or its space file with what is changed in it.
    pub what: String,
    pub facts: Facts,
}

/// B over A, minus one, with its interval at the file's `confidence`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    pub ratio: f64,
    pub from: f64,
    pub to: f64,
}

impl Difference {
    pub(super) fn of(estimate: Estimate) -> Self {
        let (from, to) = estimate.interval();
        let [ratio, from, to] = [estimate.log, from, to].map(f64::exp_m1);
        Self { ratio, from, to }
    }

    /// Whether the interval leaves out that nothing differs.
    pub fn is_seen(&self) -> bool {
        self.from > 0.0 || self.to < 0.0
    }
}

/// What `--equal-within` asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Equality {
    /// The interval lies within the share on both sides.
    Same,
    /// B's limit is not lower by more than the share, and may be higher by more.
    SameOrBetter,
    /// B's limit is lower by more than the share.
    Worse,
    Unknown,
}

/// Both sides at one level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LevelCompared {
    pub offered: Offered,
    /// A and B.
    pub sides: [Cell; 2],
    /// The quantile of each limit, and `output_throughput`: B over A, paired by sweep.
    pub differences: BTreeMap<String, Difference>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    pub version: u32,
    pub workload: String,
    pub seed: u64,
    /// How often every level was measured on both sides.
    pub sweeps: u32,
    pub seconds: Seconds,
    /// The two-sided confidence of the intervals, 0 to 1.
    pub confidence: f64,
    /// The most that each limit allows.
    #[serde(default)]
    pub limits: BTreeMap<String, Seconds>,
    /// A and B.
    pub sides: [SideSeen; 2],
    pub differs: Vec<Differing>,
    pub same: Vec<String>,
    /// The state of the prefix caches before each window.
    pub cache: String,
    pub levels: Vec<LevelCompared>,
    /// The limit of each side.
    pub answers: [Answer; 2],
    /// Of the limits; `None` if a side has none between the levels.
    pub difference: Option<Difference>,
    pub equal_within: Option<f64>,
    /// What `--equal-within` asks; none without it.
    pub equality: Option<Equality>,
    /// One sentence on the difference.
    pub because: String,
    pub warnings: Vec<String>,
}

pub(super) const MEASURED: Levels = Levels { are: "measured", more: "add a higher one" };

impl Comparison {
    pub fn of(seen: Seen) -> Self {
        let Seen { workload, seed, seconds, limits, mut levels, sides, windows, equal_within, sent_again } = seen;
        levels.sort_by(|a, b| a.size().unwrap_or(0.0).total_cmp(&b.size().unwrap_or(0.0)));
        let sweeps = windows.iter().map(|w| w.sweep + 1).max().unwrap_or(0);
        let of_sweep = |sweep: u32, side: usize| -> Vec<LevelWindow> {
            windows.iter().filter(|w| w.sweep == sweep && w.side == side).map(WindowSeen::level_window).collect()
        };
        let by_sweep: Vec<[Vec<LevelWindow>; 2]> =
            (0..sweeps).map(|sweep| [of_sweep(sweep, 0), of_sweep(sweep, 1)]).collect();
        let unit = levels.first().copied().unwrap_or(Offered::Users(0));
        let ends =
            levels.first().and_then(|l| l.size()).zip(levels.last().and_then(|l| l.size())).unwrap_or((0.0, 0.0));
        let range = Range { lowest: ends.0, highest: ends.1, whole: matches!(unit, Offered::Users(_)) };
        let answers = [0, 1].map(|side| {
            let of_side = || windows.iter().filter(move |w| w.side == side);
            let all: Vec<LevelWindow> = of_side().map(WindowSeen::level_window).collect();
            let mut shown: Vec<Summary> = of_side().map(|w| w.summary.clone()).collect();
            shown.sort_by(|a, b| a.offered.size().unwrap_or(0.0).total_cmp(&b.offered.size().unwrap_or(0.0)));
            Answer::of(unit, &limits, &known(range, &all), &shown, &MEASURED)
        });
        let both = answers.iter().all(|answer| answer.status == Status::Found);
        let difference =
            both.then(|| of_limits(Range { whole: false, ..range }, &by_sweep)).flatten().map(Difference::of);
        let compared: Vec<LevelCompared> = levels.iter().map(|level| at_level(*level, &limits, &windows)).collect();
        let equality = equal_within.map(|share| equality(difference.as_ref(), share));
        let (differs, same) = Differing::between([&sides[0].facts, &sides[1].facts]);
        let because = answer::because(unit, &answers, difference.as_ref(), equal_within.zip(equality));
        let mut warnings = warnings(&windows, &limits);
        warnings.extend(sent_again.clone());
        Self {
            version: VERSION,
            workload,
            seed,
            sweeps,
            seconds,
            confidence: CONFIDENCE,
            limits: limits.iter().map(|limit| (limit.key(), limit.at_most)).collect(),
            sides,
            differs,
            same,
            cache: cache(&windows, sent_again.is_some()),
            levels: compared,
            answers,
            difference,
            equal_within,
            equality,
            because,
            warnings,
        }
    }
}

pub(super) fn known(range: Range, windows: &[LevelWindow]) -> Known {
    match LevelSearch::new(range, range.lowest, 0.0, windows).found() {
        Found::Root(Root { level, from, to, binding, .. }) => {
            Known::Found { level, from, to, binding, cut_short: None }
        }
        Found::NothingKept => Known::NothingKept(range.lowest),
        Found::AllKept => Known::AllKept(range.highest),
        Found::NotBracketed => Known::NotBracketed("add levels on that side, or --sweeps"),
    }
}

pub(super) fn equality(difference: Option<&Difference>, share: f64) -> Equality {
    match difference {
        Some(d) if d.to < -share => Equality::Worse,
        Some(d) if d.from >= -share && d.to <= share => Equality::Same,
        Some(d) if d.from >= -share => Equality::SameOrBetter,
        _ => Equality::Unknown,
    }
}

fn at_level(level: Offered, limits: &[Limit], windows: &[WindowSeen]) -> LevelCompared {
    let of_side = |side: usize| windows.iter().filter(move |w| w.side == side && w.summary.offered == level);
    let pairs: Vec<[&WindowSeen; 2]> =
        of_side(0).filter_map(|a| Some([a, of_side(1).find(|b| b.sweep == a.sweep)?])).collect();
    // The logarithm of a quantile with its standard error.
    type Log<'a> = Box<dyn Fn(&WindowSeen) -> Option<(f64, f64)> + 'a>;
    let ratio = |log: Log<'_>| {
        let both = pairs.iter().filter_map(|[a, b]| log(a).zip(log(b)));
        let (logs, squares): (Vec<f64>, Vec<f64>) =
            both.map(|((a, a_error), (b, b_error))| (b - a, a_error * a_error + b_error * b_error)).unzip();
        of_pairs(&logs, crate::spread::mean(&squares).sqrt()).map(Difference::of)
    };
    let mut differences: BTreeMap<String, Difference> = limits
        .iter()
        .enumerate()
        .filter_map(|(place, limit)| Some((limit.key(), ratio(Box::new(move |w| w.log_quantile(place)))?)))
        .collect();
    // Of a count of answers, as if they came independently.
    let throughput = |w: &WindowSeen| {
        let tokens = w.summary.output_throughput.filter(|tokens| tokens.0 > 0.0)?;
        Some((tokens.0.ln(), 1.0 / (w.summary.completed.max(1) as f64).sqrt()))
    };
    differences.extend(ratio(Box::new(throughput)).map(|d| ("output_throughput".to_owned(), d)));
    let cells = [0, 1].map(|side| Cell::of(&of_side(side).collect::<Vec<_>>()));
    LevelCompared { offered: level, sides: cells, differences }
}

/// How the prefix caches were before each window.
fn cache(windows: &[WindowSeen], sent_again: bool) -> String {
    let emptied = [0, 1].map(|side| windows.iter().filter(|w| w.side == side).all(|w| w.summary.cache.reset));
    let fresh = if sent_again {
        "the file is too short for every window to have prompts of its own"
    } else {
        "every window has prompts of its own, and prefixes that it shares are sent once before it"
    };
    match emptied {
        [true, true] => "emptied before each window on both sides".to_owned(),
        [false, false] => format!("not emptied: {fresh}"),
        [a, _] => format!("emptied before each window on {} alone: {fresh}", NAMES[usize::from(!a)]),
    }
}

/// Every warning once, with the side that gave it, and limits whose quantile stands on too few requests.
pub(super) fn warnings(windows: &[WindowSeen], limits: &[Limit]) -> Vec<String> {
    let mut warned: Vec<(String, [bool; 2])> = Vec::new();
    // Windows differ in their numbers; the first one's stand for all.
    let words = |warning: &str| warning.replace(|c: char| c.is_ascii_digit(), "");
    for window in windows {
        let void = (window.summary.standing == crate::report::bench::Standing::Void).then(|| {
            format!(
                "a window at {} is void: {}",
                window.summary.offered,
                window.summary.because.as_deref().unwrap_or_default()
            )
        });
        // The windows of a level count together, and of one that broke its limits nobody asks how many were cut.
        let own = window
            .summary
            .warnings
            .iter()
            .filter(|w| !w.starts_with("a p99 of ") && !w.contains("have no whole answer"));
        for warning in own.cloned().chain(void) {
            match warned.iter_mut().find(|(known, _)| words(known) == words(&warning)) {
                Some((_, sides)) => sides[window.side] = true,
                None => warned.push((warning, [window.side == 0, window.side == 1])),
            }
        }
    }
    let named = |(warning, sides): (String, [bool; 2])| match sides {
        [true, true] => warning,
        [a, _] => format!("{}: {warning}", NAMES[usize::from(!a)]),
    };
    let few = |limit: &Limit| {
        let least = windows.iter().map(|w| w.summary.counted).min()?;
        let needs = (1.0 / (1.0 - limit.quantile)).ceil();
        ((least as f64) < needs).then(|| {
            format!(
                "some windows hold {least} requests, and {} stands on {needs} or more: give a longer --duration",
                limit.key()
            )
        })
    };
    warned.into_iter().map(named).chain(limits.iter().filter_map(few)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{compared, tsv};
    use super::*;
    use crate::levels::LimitSeen;
    use crate::report::bench::fixtures::{level, records};
    use crate::report::bench::{Level, text::WIDTH};
    use crate::report::comparison_page;
    use crate::report::html::tests::assert_well_formed;
    use crate::report::pretty_json;
    use crate::units::Rate;

    const SLO: &str = "ttft_p95=400ms,tpot_p99=30ms";

    fn window(sweep: u32, side: usize, level: &Level) -> WindowSeen {
        let verdict = level.verdict.as_ref().unwrap();
        let seen = verdict.limits.iter().map(|l| LimitSeen::Margin(l.margin.unwrap(), l.margin_error.unwrap_or(0.1)));
        let requests = |a: f64, b: f64| [("a".to_owned(), a), ("b".to_owned(), b)].into();
        WindowSeen::of(
            sweep,
            side,
            level,
            Summary::of(level),
            seen.collect(),
            [&requests(1.0, 1.0), &requests(3.0, 7.0)],
        )
    }

    /// First tokens after `per_user` seconds for each user, a little more or less in each sweep.
    fn comparison(per_user: [f64; 2], users: &[u32], equal_within: Option<f64>) -> Comparison {
        let mut windows = Vec::new();
        for sweep in 0..4 {
            for (side, per_user) in per_user.iter().enumerate() {
                for n in users {
                    let luck = 1.0 + 0.02 * f64::from(sweep) + 0.01 * f64::from(n % 3);
                    let records = records(f64::from(*n) / 2.0, per_user * f64::from(*n) * luck);
                    windows.push(window(sweep, side, &level(Offered::Users(*n), records, SLO)));
                }
            }
        }
        let side = |what: &str, caching: &str| SideSeen {
            what: what.to_owned(),
            facts: [
                ("model", "tiny"),
                ("engine version", "0.32.0"),
                ("max-model-len", "1024"),
                ("enable-prefix-caching", caching),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        };
        Comparison::of(Seen {
            workload: "kind = \"random\", input_tokens = 200, output_tokens = 20".to_owned(),
            seed: 7,
            seconds: Seconds(400.0),
            limits: crate::settings::limits(SLO).unwrap(),
            levels: users.iter().map(|n| Offered::Users(*n)).collect(),
            sides: [side("http://127.0.0.1:8000", "true"), side("http://127.0.0.1:8001", "false")],
            windows,
            equal_within,
            sent_again: None,
        })
    }

    fn shown(comparison: &Comparison) -> String {
        let text = compared(comparison);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        text
    }

    #[test]
    fn two_limits_and_their_difference() {
        let found = comparison([0.010, 0.0065], &[20, 30, 45, 60], Some(0.03));
        insta::assert_snapshot!(shown(&found), @r#"
        A         http://127.0.0.1:8000 (tiny, 0.32.0)
        B         http://127.0.0.1:8001 (tiny, 0.32.0)
        workload  kind = "random", input_tokens = 200, output_tokens = 20; seed 7
        measured  4 sweeps of 4 levels on both sides, the order turned from one to the
                  next, within 7 min
        differs   enable-prefix-caching: true | false
        same      engine version, max-model-len, model
        cache     emptied before each window on both sides
        replicas  A: 75 %, 25 %; B: 75 %, 25 % of the requests, at 60 users

                 in ms
                   ttft   ttft   ttft  tpot  tpot  tpot    out
         users      p50    p95    p99   p50   p95   p99  tok/s cached failed  breaks
            20 A    250    297    302  10.0  10.0  10.0    200    1 %      0  holds
               B    162    193    197  10.0  10.0  10.0    200    1 %      0  holds
            30 A    367    437    445  10.0  10.0  10.0    300    1 %      0  ttft_p95
               B    239    284    289  10.0  10.0  10.0    300    1 %      0  holds
            45 A    551    655    668  10.0  10.0  10.0    450    1 %      0  ttft_p95
               B    358    426    434  10.0  10.0  10.0    450    1 %      0  ttft_p95
            60 A    734    874    890  10.0  10.0  10.0    600    1 %      0  ttft_p95
               B    477    568    579  10.0  10.0  10.0    600    1 %      0  ttft_p95

        B against A, paired by sweep (90 % intervals):
          20 users: tpot_p99 +0.0 % (-3.7 % to +3.9 %), ttft_p95 -35 % (-37 % to -32 %),
          tokens per second +0.0 % (-3.7 % to +3.9 %)
          30 users: tpot_p99 +0.0 % (-3.7 % to +3.9 %), ttft_p95 -35 % (-37 % to -32 %),
          tokens per second +0.0 % (-3.7 % to +3.9 %)
          45 users: tpot_p99 +0.0 % (-3.7 % to +3.9 %), ttft_p95 -35 % (-37 % to -32 %),
          tokens per second +0.0 % (-3.7 % to +3.9 %)
          60 users: tpot_p99 +0.0 % (-3.7 % to +3.9 %), ttft_p95 -35 % (-37 % to -32 %),
          tokens per second +0.0 % (-3.7 % to +3.9 %)

        A  27 users keep ttft_p95 <= 400 ms and tpot_p99 <= 30.0 ms (90 %: 21 to 34);
           ttft_p95 breaks first
        B  42 users keep ttft_p95 <= 400 ms and tpot_p99 <= 30.0 ms (90 %: 34 to 50);
           ttft_p95 breaks first

        B keeps 55 % more users than A (90 %: +52 % to +58 %); same or better: the whole
        interval lies above -3 %
        "#);
        assert_eq!(found.equality, Some(Equality::SameOrBetter));
        let difference = found.difference.unwrap();
        assert!((difference.ratio - 0.538).abs() < 0.05 && difference.is_seen(), "{difference:?}");
        assert!(difference.from < difference.ratio && difference.ratio < difference.to);
        let text = serde_json::from_str::<Comparison>(&pretty_json(&found)).unwrap();
        assert_eq!(text.answers, found.answers);
        let rows = tsv(&found);
        let rows: Vec<Vec<&str>> = rows.lines().map(|line| line.split('\t').collect()).collect();
        assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{rows:?}");
        assert_eq!(rows[1][..8], ["breakpoint", "A", "users", "27", "21", "34", "found", "ttft_p95"]);
        assert_eq!((rows[3][0], rows.len()), ("difference", 1 + 2 + 1 + 8));
    }

    #[test]
    fn the_page_says_the_answer_first_and_draws_both_curves() {
        let found = comparison([0.010, 0.0065], &[20, 30, 45, 60], Some(0.03));
        let page = comparison_page(&found).replace('\u{a0}', " ");
        let headline = page.find("<h1>B keeps 55 % more users than A (90 %: +52 % to +58 %).</h1>").unwrap();
        assert!(headline < page.find("<svg viewBox").unwrap());
        for part in ["band defaults", "band tuned", "line limit", "A: 27 users", "B: 42 users", "limit 400 ms"] {
            assert!(page.contains(part), "{part}");
        }
        let ttft = found.levels[0].sides[0].quantiles["ttft_p95"];
        assert!(ttft.from < ttft.value && ttft.value < ttft.to, "{ttft:?}");
        assert!(page.contains("The traffic has no conversations of several turns."));
        assert_well_formed(&page);
    }

    #[test]
    fn turns_of_conversations_are_told_apart() {
        let turned = |side: usize, sweep: u32| {
            let mut records = records(10.0, 0.1);
            for (number, record) in records.iter_mut().enumerate() {
                let turn = number as u32 % 3;
                record.turn = Some((number as u32 / 3, turn));
                record.first = record.first.map(|first| first + Seconds(0.1 * f64::from(turn) * side as f64));
                (record.tokens_in, record.tokens_cached) = (Some(100), Some(30 * turn));
            }
            window(sweep, side, &level(Offered::Users(20), records, SLO))
        };
        let windows = (0..2).flat_map(|sweep| [turned(0, sweep), turned(1, sweep)]).collect();
        let side = || SideSeen { what: "x".to_owned(), facts: [("model".to_owned(), "m".to_owned())].into() };
        let found = Comparison::of(Seen {
            workload: String::new(),
            seed: 7,
            seconds: Seconds(1.0),
            limits: crate::settings::limits(SLO).unwrap(),
            levels: vec![Offered::Users(20)],
            sides: [side(), side()],
            windows,
            equal_within: None,
            sent_again: None,
        });
        let [a, b] = &found.levels[0].sides;
        let turns = |cell: &Cell| cell.turns.iter().map(|t| (t.turn, t.cached_share.unwrap())).collect::<Vec<_>>();
        assert_eq!((turns(a), turns(b)), (turns(a), vec![(1, 0.0), (2, 0.3), (3, 0.6)]));
        let slower = b.turns[2].ttft.median.0 - a.turns[2].ttft.median.0;
        assert!((slower - 0.2).abs() < 1e-6, "{slower}");
        let text = shown(&found);
        assert!(text.contains("at 20 users, by turn:") && text.contains("60 %"), "{text}");
        assert!(comparison_page(&found).contains("TTFT by turn"));
    }

    #[test]
    fn the_same_against_the_same_is_no_difference() {
        let found = comparison([0.010, 0.010], &[20, 30, 45, 60], Some(0.2));
        assert!(found.because.starts_with("no difference is seen: B keeps 0.0 % "), "{}", found.because);
        assert_eq!(found.equality, Some(Equality::Same));
        assert_eq!(comparison([0.010, 0.010], &[20, 30, 45, 60], Some(0.001)).equality, Some(Equality::Unknown));
        assert_eq!(comparison([0.0065, 0.010], &[20, 30, 45, 60], Some(0.03)).equality, Some(Equality::Worse));
    }

    #[test]
    fn no_percentage_stands_where_a_side_has_no_limit() {
        for (per_user, part) in [
            ([0.010, 0.030], "no percentage can be told: B keeps the limits at no level that was measured"),
            ([0.002, 0.010], "no percentage can be told: A keeps the limits at every level that was measured"),
            ([0.030, 0.030], "no percentage can be told: A and B keep the limits at no level that was measured"),
        ] {
            let found = comparison(per_user, &[20, 30, 45, 60], Some(0.03));
            assert!(found.difference.is_none() && found.because.contains(part), "{}", found.because);
            assert_eq!(found.equality, Some(Equality::Unknown));
            // Their quantiles are compared all the same.
            let ttft = found.levels[0].differences["ttft_p95"];
            assert_eq!(ttft.is_seen(), per_user[0] != per_user[1], "{ttft:?}");
            assert!(!shown(&found).is_empty());
        }
    }

    #[test]
    fn a_rate_has_no_whole_levels() {
        let at = |rate: f64, ttft: f64| window(0, 0, &level(Offered::Rate(Rate(rate)), records(rate, ttft), SLO));
        let windows = [at(10.0, 0.1), at(20.0, 0.2), at(40.0, 0.4)].map(|w| w.level_window());
        let Known::Found { level, .. } = known(Range { lowest: 10.0, highest: 40.0, whole: false }, &windows) else {
            panic!("the limit lies between the levels")
        };
        assert!(level > 20.0 && level < 40.0 && level.fract() > 0.0, "{level}");
    }
}
