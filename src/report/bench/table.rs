//! A ladder as tables for people: one row a level, the highest that held marked.

use super::ladder::Ladder;
use super::level::Offered;
use super::spread::{QUANTILES, Spread};
use super::standing::Standing;
use super::summary::Summary;
use super::text::{NOTHING, WIDTH, entry, millis, per_second, percent};
use crate::settings::Metric;
use crate::units::Seconds;

/// A column: two lines of its head, its width with the space before it, and what it says of a level.
struct Column<'c> {
    head: [&'c str; 2],
    width: usize,
    cell: Box<dyn Fn(&Summary) -> String + 'c>,
}

fn column<'c>(head: [&'c str; 2], width: usize, cell: impl Fn(&Summary) -> String + 'c) -> Column<'c> {
    Column { head, width, cell: Box::new(cell) }
}

/// The ladder in 80 columns: rates with verdicts, latencies in milliseconds, and below them what they show.
pub fn table(ladder: &Ladder) -> String {
    let kind = kind(&ladder.levels);
    let promises = ladder.has_promises();
    let level = || column(["", kind], 7, |s| size(s.offered));
    let mut rates = vec![
        level(),
        column(["", "achieved"], 9, |s| per_second(s.achieved_rate.map(|r| r.0))),
        column(["", "failed"], 7, |s| s.failed.to_string()),
        column(["output", "tok/s"], 8, |s| s.output_throughput.map_or(NOTHING.to_owned(), |r| format!("{:.0}", r.0))),
        column(["", "cached"], 7, |s| s.cache.measured_share.map_or(NOTHING.to_owned(), percent)),
    ];
    if promises {
        rates.push(column(["", "goodput"], 8, |s| per_second(s.goodput.map(|r| r.0))));
    }
    let verdict = |place: usize, summary: &Summary| {
        let mark = if ladder.highest == Some(place) { mark(summary.standing) } else { "" };
        format!(" {}{mark}", summary.standing.word())
    };
    let of = |spread: Option<Spread>, value: fn(&Spread) -> Seconds| millis(spread.as_ref().map(value));
    let times: Vec<Column<'_>> = std::iter::once(level())
        .chain(SHOWN.into_iter().flat_map(|(metric, spread)| {
            QUANTILES.map(|(name, value)| column([metric.name(), name], 7, move |s| of(spread(s), value)))
        }))
        .collect();
    let mut text = grid(&ladder.levels, &rates, if promises { " verdict" } else { "" }, verdict).text();
    text += &format!("\n{:7} in ms\n{}", "", grid(&ladder.levels, &times, "", |_, _| String::new()).text());
    text + &own_grid(&ladder.levels, kind) + "\n" + &notes(ladder)
}

/// Promised quantiles that no other table shows, below an empty line; nothing where there are none.
fn own_grid(levels: &[Summary], kind: &str) -> String {
    let own = own_quantiles(levels);
    if own.is_empty() {
        return String::new();
    }
    let columns = own.iter().map(|key| column(["", key], key.len() + 2, move |s| millis(measured(s, key))));
    let level = column(["", kind], 7, |s| size(s.offered));
    let columns: Vec<Column<'_>> = std::iter::once(level).chain(columns).collect();
    format!("\n{}", grid(levels, &columns, "", |_, _| String::new()).text())
}

/// The windows of a search in one table, each with its verdict where there is one set of promises. Rules with a text stand at levels.
pub(super) fn find_grid(levels: &[Summary], judged: bool, rules: &[(f64, String)]) -> String {
    let kind = kind(levels);
    let mut columns = vec![
        column(["", kind], 7, |s| size(s.offered)),
        column(["", "req/s"], 8, |s| per_second(s.achieved_rate.map(|r| r.0))),
    ];
    for (metric, spread) in &SHOWN[..2] {
        for (name, value) in QUANTILES {
            let of = move |s: &Summary| millis(spread(s).as_ref().map(value));
            columns.push(column([metric.name(), name], 7, of));
        }
    }
    columns.push(column(["", "cached"], 7, |s| s.cache.measured_share.map_or(NOTHING.to_owned(), percent)));
    let verdict = |_: usize, summary: &Summary| match (&summary.verdict, summary.standing) {
        _ if !judged => String::new(),
        (_, Standing::Pass) => "  holds".to_owned(),
        (Some(verdict), Standing::Fail) => {
            format!("  {}", verdict.binding.as_deref().unwrap_or_default())
        }
        (_, standing) => format!("  {}", standing.word()),
    };
    let Grid { head, rows } = grid(levels, &columns, if judged { "  breaks" } else { "" }, verdict);
    let sizes = levels.iter().map(|s| s.offered.size().unwrap_or(0.0));
    let mut text = format!("{:15} in ms\n{head}", "");
    let mut rules = rules.iter().peekable();
    let rule = |words: &str| format!("  {:-<width$}\n", format!("---- {words} "), width = WIDTH - 4);
    for (row, size) in rows.iter().zip(sizes) {
        while let Some((_, words)) = rules.next_if(|(at, _)| *at < size) {
            text += &rule(words);
        }
        text += row;
    }
    text += &rules.map(|(_, words)| rule(words)).collect::<String>();
    text + &own_grid(levels, kind)
}

/// What heads the column of levels.
fn kind(levels: &[Summary]) -> &'static str {
    levels.first().map_or("level", |s| match s.offered {
        Offered::Rate(_) => "req/s",
        Offered::Users(_) => "users",
        Offered::AllAtOnce(_) => "at once",
        Offered::Recorded => "level",
    })
}

type OfLevel = fn(&Summary) -> Option<Spread>;

/// The metrics of the second table; gaps between tokens are many to a request and stand in the files.
const SHOWN: [(Metric, OfLevel); 3] =
    [(Metric::Ttft, |s| s.ttft), (Metric::Tpot, |s| s.tpot), (Metric::E2e, |s| s.e2e)];

/// The promises whose quantiles are in no other column, as many as fit.
fn own_quantiles(levels: &[Summary]) -> Vec<String> {
    let limits = levels.iter().find_map(|s| s.verdict.as_ref()).map_or(&[][..], |verdict| &verdict.limits);
    let shown = |key: &str| {
        SHOWN.iter().any(|(metric, _)| QUANTILES.iter().any(|(name, _)| key == format!("{}_{name}", metric.name())))
    };
    let mut room = WIDTH - 7;
    let fits = |key: &String| {
        let fits = key.len() + 2 <= room;
        room = room.saturating_sub(key.len() + 2);
        fits
    };
    limits.iter().map(|limit| limit.key.clone()).filter(|key| !shown(key)).take_while(fits).collect()
}

fn measured(summary: &Summary, key: &str) -> Option<Seconds> {
    summary.verdict.as_ref()?.limits.iter().find(|limit| limit.key == key)?.measured
}

/// A table in lines.
struct Grid {
    head: String,
    rows: Vec<String>,
}

impl Grid {
    fn text(self) -> String {
        self.head + &self.rows.concat()
    }
}

fn grid(levels: &[Summary], columns: &[Column<'_>], end: &str, of_level: impl Fn(usize, &Summary) -> String) -> Grid {
    let line = |cell: &dyn Fn(&Column<'_>) -> String, end: &str| {
        let cells: String = columns.iter().map(|c| format!("{:>width$}", cell(c), width = c.width)).collect();
        format!("{cells}{end}").trim_end().to_owned() + "\n"
    };
    let mut head = String::new();
    if columns.iter().any(|c| !c.head[0].is_empty()) {
        head += &line(&|c| c.head[0].to_owned(), "");
    }
    head += &line(&|c| c.head[1].to_owned(), end);
    let row = |(place, summary): (usize, &Summary)| line(&|c| (c.cell)(summary), &of_level(place, summary));
    Grid { head, rows: levels.iter().enumerate().map(row).collect() }
}

fn mark(standing: Standing) -> &'static str {
    if standing == Standing::KeptUp { " <- highest not saturated" } else { " <- highest passing" }
}

/// The size alone: its unit heads the column.
pub(in crate::report) fn size(offered: Offered) -> String {
    match offered {
        Offered::Rate(rate) => per_second(Some(rate.0)),
        Offered::Users(n) | Offered::AllAtOnce(n) => n.to_string(),
        Offered::Recorded => "trace".to_owned(),
    }
}

/// What the ladder shows, why a level did not hold, and every warning once with the levels that gave it.
fn notes(ladder: &Ladder) -> String {
    let mut text: String = ladder.because.iter().map(|sentence| entry("", 0, sentence)).collect();
    let mut warned: Vec<(&str, Vec<String>)> = Vec::new();
    for summary in &ladder.levels {
        let held = summary.standing.held() == Some(true);
        if let Some(because) = summary.because.as_ref().filter(|_| !held) {
            text += &entry("", 2, &format!("{}: {because}", summary.offered));
        }
        for warning in &summary.warnings {
            let level = summary.offered.to_string();
            match warned.iter_mut().find(|(known, _)| *known == warning.as_str()) {
                Some((_, levels)) => levels.push(level),
                None => warned.push((warning.as_str(), vec![level])),
            }
        }
    }
    for (warning, levels) in warned {
        let at = if levels.len() == ladder.levels.len() { String::new() } else { format!("{}: ", levels.join(", ")) };
        text += &entry("warning", 9, &format!("{at}{warning}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{at_rate, failed, level, records};
    use super::super::level::Level;
    use super::*;
    use crate::load::{ErrorClass, RequestRecord};
    use crate::units::Rate;

    fn shown(levels: &[Level]) -> String {
        let ladder = Ladder::of(levels[0].meta.clone(), levels.iter().map(Summary::of).collect());
        let text = table(&ladder);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        text
    }

    #[test]
    fn a_ladder_with_promises() {
        let slo = "ttft_p99=350ms";
        let mut interrupted = Level { partial: true, ended: Seconds(6.0), ..at_rate(80.0, 0.4, slo) };
        interrupted.records.retain(|r| r.due < Seconds(6.0));
        let levels = [at_rate(10.0, 0.1, slo), at_rate(20.0, 0.2, slo), at_rate(40.0, 0.3, slo), interrupted];
        insta::assert_snapshot!(shown(&levels), @r#"
                                 output
          req/s achieved failed   tok/s cached goodput verdict
           10.0     10.0      0     200    1 %    10.0 pass
           20.0     20.0      0     400    1 %    20.0 pass <- highest passing
           40.0     40.0      0     800    1 %    16.0 fail
           80.0     80.0      0    1600    1 %    0.00 (partial)

                in ms
                  ttft   ttft   ttft   tpot   tpot   tpot    e2e    e2e    e2e
          req/s    p50    p95    p99    p50    p95    p99    p50    p95    p99
           10.0    120    140    140   10.0   10.0   10.0    310    330    330
           20.0    240    280    280   10.0   10.0   10.0    430    470    470
           40.0    360    420    420   10.0   10.0   10.0    550    610    610
           80.0    480    560    560   10.0   10.0   10.0    670    750    750

        the limit lies between 20.0 req/s (pass) and 40.0 req/s (fail)
          40.0 req/s: 240 of 400 requests broke ttft_p99 <= 350 ms
          80.0 req/s: interrupted after 4.0 s of a window of 10.0 s
        "#);
    }

    #[test]
    fn a_pass_above_a_failure_and_a_void_level() {
        let slo = "ttft_p99=350ms";
        let late = records(5.0, 0.1).into_iter().map(|r| RequestRecord { sent: r.due + Seconds(0.2), ..r });
        let starved = level(Offered::Rate(Rate(5.0)), late.collect(), slo);
        let levels = [starved, at_rate(10.0, 0.1, slo), at_rate(20.0, 0.3, slo), at_rate(40.0, 0.2, slo)];
        insta::assert_snapshot!(shown(&levels), @r#"
                                 output
          req/s achieved failed   tok/s cached goodput verdict
           5.00     5.00      0     100    1 %    5.00 void
           10.0     10.0      0     200    1 %    10.0 pass <- highest passing
           20.0     20.0      0     400    1 %    8.00 fail
           40.0     40.0      0     800    1 %    40.0 pass

                in ms
                  ttft   ttft   ttft   tpot   tpot   tpot    e2e    e2e    e2e
          req/s    p50    p95    p99    p50    p95    p99    p50    p95    p99
           5.00    120    140    140   10.0   10.0   10.0    310    330    330
           10.0    120    140    140   10.0   10.0   10.0    310    330    330
           20.0    360    420    420   10.0   10.0   10.0    550    610    610
           40.0    240    280    280   10.0   10.0   10.0    430    470    470

        the limit lies between 10.0 req/s (pass) and 20.0 req/s (fail)
        40.0 req/s held although 20.0 req/s did not: more load is never easier, so one
        of them misleads (a cold start, a cache that was warm, a window too short); run
        both again
          5.00 req/s: this client sent late by 200 ms (p99), more than 35.0 ms
          20.0 req/s: 120 of 200 requests broke ttft_p99 <= 350 ms
        warning  5.00 req/s: a p99 of fewer than 100 requests is their largest latency:
                 send more to trust its digits
        "#);
    }

    #[test]
    fn a_ladder_without_promises() {
        let refused = records(40.0, 0.4).into_iter().map(|r| match r.id % 3 {
            0 => failed(r.id, r.due.0, ErrorClass::Unavailable),
            _ => r,
        });
        let refused = level(Offered::Rate(Rate(40.0)), refused.collect(), "");
        insta::assert_snapshot!(shown(&[at_rate(10.0, 0.1, ""), at_rate(20.0, 0.2, ""), refused]), @r#"
                                 output
          req/s achieved failed   tok/s cached
           10.0     10.0      0     200    1 % kept up
           20.0     20.0      0     400    1 % kept up <- highest not saturated
           40.0     26.7    133     534    1 % errors

                in ms
                  ttft   ttft   ttft   tpot   tpot   tpot    e2e    e2e    e2e
          req/s    p50    p95    p99    p50    p95    p99    p50    p95    p99
           10.0    120    140    140   10.0   10.0   10.0    310    330    330
           20.0    240    280    280   10.0   10.0   10.0    430    470    470
           40.0    480    560    560   10.0   10.0   10.0    670    750    750

        the limit lies between 20.0 req/s (kept up) and 40.0 req/s (errors)
          40.0 req/s: 133 of 400 requests failed (133 unavailable)
        warning  40.0 req/s: 133 of 400 requests have no whole answer: the latencies are
                 those of the others alone
        "#);
    }

    #[test]
    fn a_closed_ladder_without_promises_marks_nothing() {
        let users = |n: u32, ttft| Level {
            warnings: vec!["the server does not tell its counters".to_owned()],
            ..level(Offered::Users(n), records(f64::from(n) * 2.0, ttft), "")
        };
        insta::assert_snapshot!(shown(&[users(20, 0.2), users(5, 0.1)]), @r#"
                                 output
          users achieved failed   tok/s cached
              5     10.0      0     200    1 % -
             20     40.0      0     800    1 % -

                in ms
                  ttft   ttft   ttft   tpot   tpot   tpot    e2e    e2e    e2e
          users    p50    p95    p99    p50    p95    p99    p50    p95    p99
              5    120    140    140   10.0   10.0   10.0    310    330    330
             20    240    280    280   10.0   10.0   10.0    430    470    470

        no level is marked: a closed loop never asks faster than it is answered;
        promises (--slo) would tell which level is too much
        warning  the server does not tell its counters
        "#);
    }

    #[test]
    fn levels_of_few_requests_are_named_in_one_warning() {
        let text = shown(&[at_rate(2.0, 0.1, ""), at_rate(5.0, 0.1, ""), at_rate(20.0, 0.1, "")]);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(text.matches("warning").count(), 1, "{text}");
        assert!(text.contains("warning 2.00 req/s, 5.00 req/s: a p99 of fewer than 100 requests"), "{text}");
    }
}
