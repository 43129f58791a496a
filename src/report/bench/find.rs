//! The answer of `bench --find`: the highest level that keeps the limits, for people and as `find.json`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::VERSION;
use super::level::{Meta, Offered};
use super::summary::Summary;
use super::table::{find_grid, size};
use super::text::{WIDTH, entry};
use crate::levels::CONFIDENCE;
use crate::settings::Limit;
use crate::units::{Rate, Seconds};

/// How the levels that could be tried are called, and what gives higher ones.
pub(in crate::report) struct Levels {
    pub(in crate::report) are: &'static str,
    pub(in crate::report) more: &'static str,
}

const ALLOWED: Levels = Levels { are: "allowed", more: "raise it with --between" };

/// What is known of one set of limits.
#[derive(Clone, Debug, PartialEq)]
pub enum Known {
    /// The limit in the level, its interval, and the place of the limit that breaks first. `cut_short` says why it is less precise than was asked.
    Found { level: f64, from: f64, to: f64, binding: usize, cut_short: Option<&'static str> },
    /// Not even this lowest level keeps them.
    NothingKept(f64),
    /// This highest level keeps them.
    AllKept(f64),
    /// The data do not show that it lies between levels that were measured, and why not.
    NotBracketed(&'static str),
    /// Too few requests for a quantile, and how to get more.
    TooFewRequests(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    Found,
    NothingKept,
    AllKept,
    NotBracketed,
    TooFewRequests,
}

/// The answer to one set of limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Each limit in seconds.
    pub limits: BTreeMap<String, Seconds>,
    pub status: Status,
    /// The highest number of users, or requests per second, that keeps every limit; `None` unless it was found.
    pub level: Option<f64>,
    /// Its interval at the file's `confidence`.
    pub from: Option<f64>,
    pub to: Option<f64>,
    /// The limit that breaks first.
    pub binding: Option<String>,
    /// One sentence for people.
    pub because: String,
}

/// Everything that a search found: `find.json`, version 1 of a public format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    pub version: u32,
    pub meta: Meta,
    /// `users` or `rate`.
    pub find: String,
    /// The lowest and the highest level that were allowed.
    pub between: (f64, f64),
    /// The two-sided confidence of the intervals, 0 to 1.
    pub confidence: f64,
    /// What the search took, without the warm-up.
    pub seconds: Seconds,
    /// One for each limit of the key that has several, from the tightest.
    pub answers: Vec<Answer>,
    /// The levels, from the lightest to the heaviest, as in `ladder.json`; their verdicts are on the loosest limits.
    pub levels: Vec<Summary>,
}

impl Finding {
    /// `unit` is a level of the kind that was looked for, of any size.
    pub fn of(
        meta: Meta,
        unit: Offered,
        between: (f64, f64),
        seconds: Seconds,
        known: &[(&[Limit], Known)],
        mut levels: Vec<Summary>,
    ) -> Self {
        levels.sort_by(|a, b| a.offered.size().unwrap_or(0.0).total_cmp(&b.offered.size().unwrap_or(0.0)));
        let answers = known.iter().map(|(limits, known)| Answer::of(unit, limits, known, &levels, &ALLOWED)).collect();
        let find = if matches!(unit, Offered::Users(_)) { "users" } else { "rate" };
        Self {
            version: VERSION,
            meta,
            find: find.to_owned(),
            between,
            confidence: CONFIDENCE,
            seconds,
            answers,
            levels,
        }
    }
}

impl Answer {
    pub(in crate::report) fn of(
        unit: Offered,
        limits: &[Limit],
        known: &Known,
        levels: &[Summary],
        called: &Levels,
    ) -> Self {
        let Levels { are, more } = called;
        let all = limits.iter().map(|l| format!("{} <= {}", l.key(), l.at_most)).collect::<Vec<_>>().join(" and ");
        let (keep, still) = match sized(unit, 2.0) {
            Offered::Users(_) => ("keep", "still keep"),
            _ => ("keeps", "still keeps"),
        };
        let keys = limits.iter().map(|limit| (limit.key(), limit.at_most)).collect();
        let nothing =
            |status, because| Self { limits: keys, status, level: None, from: None, to: None, binding: None, because };
        match known {
            Known::Found { level, from, to, binding, cut_short } => {
                let key = limits.get(*binding).map(Limit::key);
                let first = match (&key, limits.len()) {
                    (Some(key), 2..) => format!("; {key} breaks first"),
                    _ => String::new(),
                };
                let wide = cut_short.map_or(String::new(), |why| format!("; wider than --precision asks: {why}"));
                let at = sized(unit, *level);
                let keep = if at == Offered::Users(1) { "keeps" } else { keep };
                let interval = interval(unit, *from, *to);
                let because = format!("{at} {keep} {all} ({:.0} %: {interval}){first}{wide}", CONFIDENCE * 100.0);
                let (level, from, to) = (Some(*level), Some(*from), Some(*to));
                Self { level, from, to, binding: key, ..nothing(Status::Found, because) }
            }
            Known::NothingKept(lowest) => {
                let at = sized(unit, *lowest);
                let keep = if at == Offered::Users(1) { "keeps" } else { keep };
                let there = levels.first().map_or(String::new(), |lowest| broken_at(lowest, limits));
                let because = format!("not even {at}, the lowest level {are}, {keep} {all}{there}");
                nothing(Status::NothingKept, because)
            }
            Known::AllKept(highest) => {
                let at = sized(unit, *highest);
                let because = format!("{at}, the highest level {are}, {still} {all}: the limit lies above; {more}");
                nothing(Status::AllKept, because)
            }
            Known::NotBracketed(why) => {
                let ends = levels.first().zip(levels.last()).map_or(String::new(), |(low, high)| {
                    format!(" between {} and {}, the ends of what was measured", size(low.offered), high.offered)
                });
                let because = format!("no limit can be told for {all}: the data do not show that it lies{ends}; {why}");
                nothing(Status::NotBracketed, because)
            }
            Known::TooFewRequests(why) => {
                nothing(Status::TooFewRequests, format!("no limit can be told for {all}: {why}"))
            }
        }
    }
}

/// What a level was measured beyond, or why it failed.
fn broken_at(level: &Summary, limits: &[Limit]) -> String {
    let measured = level.verdict.iter().flat_map(|v| &v.limits).filter_map(|l| Some((&l.key, l.measured?)));
    let beyond = measured.filter(|(key, at)| limits.iter().any(|l| l.key() == **key && *at > l.at_most));
    let beyond: Vec<String> = beyond.map(|(key, at)| format!("{key} was {at} there")).collect();
    match (beyond.is_empty(), &level.because) {
        (false, _) => format!(": {}", beyond.join(", ")),
        (true, Some(because)) => format!(": {because}"),
        (true, None) => String::new(),
    }
}

pub(in crate::report) fn sized(unit: Offered, level: f64) -> Offered {
    match unit {
        Offered::Users(_) => Offered::Users(level as u32),
        _ => Offered::Rate(Rate(level)),
    }
}

fn interval(unit: Offered, from: f64, to: f64) -> String {
    format!("{} to {}", size(sized(unit, from)), size(sized(unit, to)))
}

/// The levels in 80 columns with the limit between them, and the answer in a sentence; a curve where there are several.
pub fn found(finding: &Finding) -> String {
    let (meta, unit) = (&finding.meta, finding.levels.first().map_or(Offered::Users(0), |s| s.offered));
    let label = meta.label.as_ref().map_or(String::new(), |label| format!(" ({label})"));
    let mut text = entry("target", 10, &format!("{} at {}{label}", meta.model, meta.url));
    text += &entry("workload", 10, &format!("{}; seed {}", meta.workload, meta.seed));
    let spent: f64 = finding.levels.iter().map(|s| s.window.length().0).sum();
    let (count, seconds) = (finding.levels.len(), finding.seconds);
    text += &entry(
        "measured",
        10,
        &format!("{count} window{} of {} in all, within {seconds}", if count == 1 { "" } else { "s" }, Seconds(spent)),
    );
    let rules: Vec<(f64, String)> = finding
        .answers
        .iter()
        .filter_map(|a| {
            let at = a.level?;
            let limits = a.limits.iter().filter(|(key, _)| Some(*key) == a.binding.as_ref());
            let limit: String = limits.map(|(key, at_most)| format!("{key} = {at_most}")).collect();
            Some((at, format!("{}: {limit}", sized(unit, at))))
        })
        .collect();
    text += &format!("\n{}\n", find_grid(&finding.levels, finding.answers.len() == 1, &rules));
    if finding.answers.len() > 1 {
        text += &format!("{}\n", curve(finding, unit));
    }
    for answer in &finding.answers {
        if finding.answers.len() == 1 || answer.status != Status::Found {
            text += &entry("", 0, &answer.because);
        }
    }
    let mut warned: Vec<&str> = Vec::new();
    // What makes quantiles of short windows coarse is in the intervals; what else a level warns of is said once.
    for warning in finding.levels.iter().flat_map(|s| &s.warnings).filter(|w| !w.starts_with("a p99 of ")) {
        let answered = finding.levels.iter().any(|s| s.failed > 0 && s.standing.held() == Some(true));
        let of_cut = warning.contains("have no whole answer") && !answered;
        if !of_cut && !warned.contains(&warning.as_str()) {
            warned.push(warning);
        }
    }
    text + &warned.into_iter().map(|warning| entry("warning", 9, warning)).collect::<String>()
}

/// The levels of a curve, one line a limit, with a bar each.
fn curve(finding: &Finding, unit: Offered) -> String {
    let varied = finding.answers.first().zip(finding.answers.last()).and_then(|(first, last)| {
        first.limits.iter().find(|(key, at_most)| last.limits.get(*key) != Some(*at_most)).map(|(key, _)| key.clone())
    });
    let Some(varied) = varied else { return String::new() };
    let fixed = finding.answers[0].limits.iter().filter(|(key, _)| **key != varied);
    let fixed: Vec<String> = fixed.map(|(key, at_most)| format!("{key} <= {at_most}")).collect();
    let beside = if fixed.is_empty() { String::new() } else { format!(", with {}", fixed.join(" and ")) };
    let kind = if matches!(unit, Offered::Users(_)) { "users" } else { "req/s" };
    let most = finding.answers.iter().filter_map(|a| a.level).fold(0.0, f64::max);
    let head = format!("{varied} <=");
    let mut text = entry("", 0, &format!("the most {kind} by {varied}{beside}:"));
    text += &format!("\n{head:>14}{kind:>8}  {:<14}  {:<12}\n", "90 % interval", "breaks first");
    let used = 14 + 8 + 2 + 14 + 2 + 12 + 2;
    for answer in &finding.answers {
        let limit = answer.limits.get(&varied).map_or(String::new(), ToString::to_string);
        let line = match (answer.level, answer.from, answer.to) {
            (Some(level), Some(from), Some(to)) => {
                let bar = "#".repeat(((level / most) * (WIDTH - used) as f64).round() as usize);
                let (binding, at) = (answer.binding.as_deref().unwrap_or_default(), size(sized(unit, level)));
                format!("{limit:>14}{at:>8}  {:<14}  {binding:<12}  {bar}", interval(unit, from, to))
            }
            _ => format!("{limit:>14}{:>8}  {}", "-", short(answer.status)),
        };
        text += &format!("{}\n", line.trim_end());
    }
    text
}

fn short(status: Status) -> &'static str {
    match status {
        Status::Found => "",
        Status::NothingKept => "kept by no level",
        Status::AllKept => "kept by every level",
        Status::NotBracketed => "not bracketed",
        Status::TooFewRequests => "too few requests",
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{level, records};
    use super::*;
    use crate::report::pretty_json;

    const SLO: &str = "ttft_p95=400ms,tpot_p99=30ms";

    fn levels(users: &[(u32, f64)], slo: &str) -> Vec<Summary> {
        let of =
            |(n, ttft): &(u32, f64)| Summary::of(&level(Offered::Users(*n), records(f64::from(*n) / 2.0, *ttft), slo));
        users.iter().map(of).collect()
    }

    fn finding(known: &[(&str, Known)], users: &[(u32, f64)]) -> Finding {
        let limits: Vec<Vec<Limit>> = known.iter().map(|(slo, _)| crate::settings::limits(slo).unwrap()).collect();
        let known: Vec<(&[Limit], Known)> =
            limits.iter().zip(known).map(|(limits, (_, known))| (limits.as_slice(), known.clone())).collect();
        let meta = level(Offered::Users(1), vec![], "").meta;
        let levels = levels(users, known.last().map_or("", |_| SLO));
        Finding::of(meta, Offered::Users(0), (1.0, 1000.0), Seconds(204.0), &known, levels)
    }

    fn at(level: f64, from: f64, to: f64) -> Known {
        Known::Found { level, from, to, binding: 0, cut_short: None }
    }

    fn shown(finding: &Finding) -> String {
        let text = found(finding);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        text
    }

    #[test]
    fn one_set_of_limits_is_a_table_with_a_sentence() {
        let users = [(64, 0.5), (8, 0.05), (48, 0.28), (52, 0.3)];
        insta::assert_snapshot!(shown(&finding(&[(SLO, at(50.0, 45.0, 56.0))], &users)), @r#"
        target    tiny at http://127.0.0.1:8000
        workload  random, 200 tokens in, 20 out; seed 7
        measured  4 windows of 40.0 s in all, within 3 min

                        in ms
                          ttft   ttft   ttft   tpot   tpot   tpot
          users   req/s    p50    p95    p99    p50    p95    p99 cached  breaks
              8    4.00   60.0   70.0   70.0   10.0   10.0   10.0    1 %  holds
             48    24.0    336    392    392   10.0   10.0   10.0    1 %  unresolved
          ---- 50 users: ttft_p95 = 400 ms -------------------------------------------
             52    26.0    360    420    420   10.0   10.0   10.0    1 %  unresolved
             64    32.0    600    700    700   10.0   10.0   10.0    1 %  ttft_p95

        50 users keep ttft_p95 <= 400 ms and tpot_p99 <= 30.0 ms (90 %: 45 to 56);
        ttft_p95 breaks first
        "#);
    }

    #[test]
    fn several_limits_of_a_key_are_a_curve() {
        let known = [
            ("ttft_p95=20ms,tpot_p99=30ms", Known::NothingKept(1.0)),
            ("ttft_p95=200ms,tpot_p99=30ms", at(24.0, 22.0, 26.0)),
            ("ttft_p95=400ms,tpot_p99=30ms", at(50.0, 45.0, 56.0)),
        ];
        insta::assert_snapshot!(shown(&finding(&known, &[(8, 0.05), (32, 0.2), (64, 0.5)])), @r#"
        target    tiny at http://127.0.0.1:8000
        workload  random, 200 tokens in, 20 out; seed 7
        measured  3 windows of 30.0 s in all, within 3 min

                        in ms
                          ttft   ttft   ttft   tpot   tpot   tpot
          users   req/s    p50    p95    p99    p50    p95    p99 cached
              8    4.00   60.0   70.0   70.0   10.0   10.0   10.0    1 %
          ---- 24 users: ttft_p95 = 200 ms -------------------------------------------
             32    16.0    240    280    280   10.0   10.0   10.0    1 %
          ---- 50 users: ttft_p95 = 400 ms -------------------------------------------
             64    32.0    600    700    700   10.0   10.0   10.0    1 %

        the most users by ttft_p95, with tpot_p99 <= 30.0 ms:

           ttft_p95 <=   users  90 % interval   breaks first
               20.0 ms       -  kept by no level
                200 ms      24  22 to 26        ttft_p95      ############
                400 ms      50  45 to 56        ttft_p95      ##########################

        not even 1 user, the lowest level allowed, keeps ttft_p95 <= 20.0 ms and
        tpot_p99 <= 30.0 ms: ttft_p95 was 70.0 ms there
        "#);
    }

    #[test]
    fn what_cannot_be_told_is_said_with_its_remedy() {
        let says = |known| finding(&[(SLO, known)], &[(1, 0.5), (8, 0.9)]).answers[0].because.clone();
        let known = [
            Known::Found {
                level: 1.0,
                from: 1.0,
                to: 2.0,
                binding: 1,
                cut_short: Some("the time of --budget was over"),
            },
            Known::NothingKept(1.0),
            Known::AllKept(1000.0),
            Known::NotBracketed("the time of --budget was over"),
            Known::TooFewRequests("a window holds 40 requests".to_owned()),
        ];
        insta::assert_snapshot!(known.map(says).join("\n"), @r#"
        1 user keeps ttft_p95 <= 400 ms and tpot_p99 <= 30.0 ms (90 %: 1 to 2); tpot_p99 breaks first; wider than --precision asks: the time of --budget was over
        not even 1 user, the lowest level allowed, keeps ttft_p95 <= 400 ms and tpot_p99 <= 30.0 ms: ttft_p95 was 700 ms there
        1000 users, the highest level allowed, still keep ttft_p95 <= 400 ms and tpot_p99 <= 30.0 ms: the limit lies above; raise it with --between
        no limit can be told for ttft_p95 <= 400 ms and tpot_p99 <= 30.0 ms: the data do not show that it lies between 1 and 8 users, the ends of what was measured; the time of --budget was over
        no limit can be told for ttft_p95 <= 400 ms and tpot_p99 <= 30.0 ms: a window holds 40 requests
        "#);
    }

    #[test]
    fn the_file_reads_back() {
        let finding = finding(&[(SLO, at(50.0, 45.0, 56.0))], &[(8, 0.05), (64, 0.5)]);
        let text = pretty_json(&finding);
        assert_eq!(serde_json::from_str::<Finding>(&text).unwrap(), finding);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&value["version"], &value["find"]), (&1.into(), &"users".into()));
        let answer = &value["answers"][0];
        assert_eq!((&answer["status"], &answer["level"], &answer["to"]), (&"found".into(), &50.0.into(), &56.0.into()));
        assert_eq!((&answer["binding"], &answer["limits"]["tpot_p99"]), (&"ttft_p95".into(), &0.03.into()));
    }
}
