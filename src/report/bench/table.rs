//! A ladder as a table for people: one row a level, the highest that held marked.

use super::ladder::Ladder;
use super::level::Offered;
use super::spread::Spread;
use super::standing::Standing;
use super::text::{NOTHING, entry, millis, per_second};
use crate::units::Seconds;

/// Widths of the columns of numbers, the space before each included; the goodput comes last and only with promises.
const WIDTHS: [usize; 10] = [7, 9, 7, 7, 7, 7, 7, 8, 8, 8];

/// The ladder in at most 100 columns, latencies in milliseconds, and below it what it shows.
pub fn table(ladder: &Ladder) -> String {
    let kind = ladder.levels.first().map_or("level", |s| match s.offered {
        Offered::Rate(_) => "req/s",
        Offered::Users(_) => "users",
        Offered::AllAtOnce(_) => "at once",
        Offered::Recorded => "level",
    });
    let promises = ladder.has_promises();
    let line = |cells: [&str; 10], end: &str| {
        let numbers = cells.iter().zip(WIDTHS).take(if promises { 10 } else { 9 });
        let numbers: String = numbers.map(|(cell, width)| format!("{cell:>width$}")).collect();
        format!("{numbers} {end}").trim_end().to_owned() + "\n"
    };
    let mut text = line(["", "", "", "ttft", "ttft", "tpot", "tpot", "e2e", "output", ""], "");
    let units = [kind, "achieved", "failed", "p50 ms", "p99 ms", "p50 ms", "p99 ms", "p99 ms", "tok/s", "goodput"];
    text += &line(units, if promises { "verdict" } else { "" });
    for (place, summary) in ladder.levels.iter().enumerate() {
        let of = |spread: Option<Spread>, value: fn(&Spread) -> Seconds| millis(spread.as_ref().map(value));
        let cells = [
            size(summary.offered),
            per_second(summary.achieved_rate.map(|r| r.0)),
            summary.failed.to_string(),
            of(summary.ttft, |s| s.median),
            of(summary.ttft, |s| s.p99),
            of(summary.tpot, |s| s.median),
            of(summary.tpot, |s| s.p99),
            of(summary.e2e, |s| s.p99),
            summary.output_throughput.map_or(NOTHING.to_owned(), |r| format!("{:.0}", r.0)),
            per_second(summary.goodput.map(|r| r.0)),
        ];
        let mark = if ladder.highest == Some(place) { mark(summary.standing) } else { "" };
        text += &line(cells.each_ref().map(String::as_str), &format!("{}{mark}", summary.standing.word()));
    }
    text + "\n" + &notes(ladder)
}

fn mark(standing: Standing) -> &'static str {
    if standing == Standing::KeptUp { " <- highest not saturated" } else { " <- highest passing" }
}

/// The size alone: its unit heads the column.
fn size(offered: Offered) -> String {
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
    use super::super::summary::Summary;
    use super::super::text::WIDTH;
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
                                  ttft   ttft   tpot   tpot     e2e  output
          req/s achieved failed p50 ms p99 ms p50 ms p99 ms  p99 ms   tok/s goodput verdict
           10.0     10.0      0    120    140   10.0   10.0     330     200    10.0 pass
           20.0     20.0      0    240    280   10.0   10.0     470     400    20.0 pass <- highest passing
           40.0     40.0      0    360    420   10.0   10.0     610     800    16.0 fail
           80.0     80.0      0    480    560   10.0   10.0     750    1600    0.00 (partial)

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
                                  ttft   ttft   tpot   tpot     e2e  output
          req/s achieved failed p50 ms p99 ms p50 ms p99 ms  p99 ms   tok/s goodput verdict
           5.00     5.00      0    120    140   10.0   10.0     330     100    5.00 void
           10.0     10.0      0    120    140   10.0   10.0     330     200    10.0 pass <- highest passing
           20.0     20.0      0    360    420   10.0   10.0     610     400    8.00 fail
           40.0     40.0      0    240    280   10.0   10.0     470     800    40.0 pass

        the limit lies between 10.0 req/s (pass) and 20.0 req/s (fail)
        40.0 req/s held although 20.0 req/s did not: more load is never easier, so one of them misleads (a
        cold start, a cache that was warm, a window too short); run both again
          5.00 req/s: our own sends lagged 200 ms (p99), more than 35.0 ms
          20.0 req/s: 120 of 200 requests broke ttft_p99 <= 350 ms
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
                                  ttft   ttft   tpot   tpot     e2e  output
          req/s achieved failed p50 ms p99 ms p50 ms p99 ms  p99 ms   tok/s
           10.0     10.0      0    120    140   10.0   10.0     330     200 kept up
           20.0     20.0      0    240    280   10.0   10.0     470     400 kept up <- highest not saturated
           40.0     26.7    133    480    560   10.0   10.0     750     534 errors

        the limit lies between 20.0 req/s (kept up) and 40.0 req/s (errors)
          40.0 req/s: 133 of 400 requests failed (133 unavailable)
        warning  40.0 req/s: 133 of 400 requests have no whole answer: the latencies are those of the others
                 alone
        "#);
    }

    #[test]
    fn a_closed_ladder_without_promises_marks_nothing() {
        let users = |n: u32, ttft| Level {
            warnings: vec!["the server does not tell its counters".to_owned()],
            ..level(Offered::Users(n), records(f64::from(n) * 2.0, ttft), "")
        };
        insta::assert_snapshot!(shown(&[users(20, 0.2), users(5, 0.1)]), @r#"
                                  ttft   ttft   tpot   tpot     e2e  output
          users achieved failed p50 ms p99 ms p50 ms p99 ms  p99 ms   tok/s
              5     10.0      0    120    140   10.0   10.0     330     200 -
             20     40.0      0    240    280   10.0   10.0     470     800 -

        no level is marked: a closed loop never asks faster than it is answered; promises (--slo) would tell
        which level is too much
        warning  the server does not tell its counters
        "#);
    }
}
