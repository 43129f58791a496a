//! One level of load as a block of lines for people.

use std::fmt::Write;

use super::level::{Meta, Offered};
use super::spread::Spread;
use super::standing::{Standing, classes};
use super::summary::Summary;
use super::text::{entry, joined, millis, per_second, percent};
use crate::rig::ShareSource;
use crate::units::{Rate, Seconds, TokenRate};

const INDENT: usize = 12;

/// The level in at most 80 columns, latencies in milliseconds.
pub fn block(meta: &Meta, summary: &Summary) -> String {
    let label = meta.label.as_ref().map_or(String::new(), |label| format!(" ({label})"));
    let (lag_p99, lag_max) = (summary.client.lag_p99, summary.client.lag_max);
    let above = [
        ("target", Some(format!("{} at {}{label}", meta.model, meta.url))),
        ("workload", Some(format!("{}; seed {}", meta.workload, meta.seed))),
        ("offered", Some(offered(summary))),
        ("achieved", Some(achieved(summary))),
    ];
    let below = [
        ("tokens", tokens(summary)),
        ("goodput", goodput(summary)),
        ("cache", Some(cache(summary))),
        ("server", server(summary)),
        ("client", Some(format!("sends lagged {lag_p99} (p99), {lag_max} at most"))),
        ("verdict", verdict(summary)),
    ];
    let warnings = summary.warnings.iter().map(|warning| ("warning", Some(warning.clone())));
    let line = |(name, sentence): (&str, Option<String>)| sentence.map(|sentence| entry(name, INDENT, &sentence));
    let above: String = above.into_iter().filter_map(line).collect();
    let below: String = below.into_iter().chain(warnings).filter_map(line).collect();
    above + &latencies(summary) + &below
}

fn offered(summary: &Summary) -> String {
    let (counted, length) = (summary.counted, summary.window.length().0);
    let requests = if counted == 1 { "request" } else { "requests" };
    // A rate of requests that were sent all at once would be that of the window's length.
    let rate = summary.offered_rate.filter(|_| !matches!(summary.offered, Offered::AllAtOnce(_)));
    let rate = rate.map_or(String::new(), |rate| format!(", which is {rate}"));
    let partial = if summary.partial { " (partial)" } else { "" };
    format!("{}: {counted} {requests} due within {length:.1} s{rate}{partial}", summary.offered)
}

fn achieved(summary: &Summary) -> String {
    let rate = summary.achieved_rate.map_or("no rate".to_owned(), |rate| rate.to_string());
    let classes = if summary.errors.is_empty() { String::new() } else { format!(" ({})", classes(&summary.errors)) };
    let (completed, failed, peak) = (summary.completed, summary.failed, summary.peak_concurrency);
    format!("{rate}; {completed} completed, {failed} failed{classes}; at most {peak} in flight")
}

fn latencies(summary: &Summary) -> String {
    let mut text = String::new();
    let columns = ["p50", "p90", "p95", "p99", "mean", "count"].map(|c| format!("{c:>10}")).concat();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "\n{:INDENT$}{columns}", "ms");
    for (name, spread) in [("ttft", summary.ttft), ("tpot", summary.tpot), ("itl", summary.itl), ("e2e", summary.e2e)] {
        let of = |value: fn(&Spread) -> Seconds| millis(spread.as_ref().map(value));
        let count = spread.map_or(0, |s| s.observations);
        let cells = [of(|s| s.median), of(|s| s.p90), of(|s| s.p95), of(|s| s.p99), of(|s| s.mean), count.to_string()];
        let _ = writeln!(text, "{name:INDENT$}{}", cells.map(|cell| format!("{cell:>10}")).concat());
    }
    text + "\n"
}

fn tokens(summary: &Summary) -> Option<String> {
    let rate = |rate: Option<TokenRate>, what: &str| rate.map(|rate| format!("{rate} {what}"));
    let peak = summary.peak_output_throughput.map(|peak| format!("{} in its busiest second", per_second(Some(peak.0))));
    let totals = summary.input_tokens.zip(summary.output_tokens).map(|(i, o)| format!("{i} in and {o} out in total"));
    joined([rate(summary.output_throughput, "out"), peak, rate(summary.input_throughput, "in"), totals])
}

fn goodput(summary: &Summary) -> Option<String> {
    let limits = summary.goodput_limits.as_ref()?;
    let share = |good: Rate| summary.achieved_rate.filter(|all| all.0 > 0.0).map(|all| percent(good.0 / all.0));
    let share =
        summary.goodput.and_then(share).map_or(String::new(), |share| format!(", {share} of the achieved rate"));
    Some(format!("{}{share}, within {limits}", summary.goodput?))
}

fn cache(summary: &Summary) -> String {
    let cache = summary.cache;
    let reset = if cache.reset { "emptied before" } else { "not emptied before" };
    let by = match cache.source {
        Some(ShareSource::Usage) => " by usage",
        Some(ShareSource::Counters) => " by the server's counters",
        None => "",
    };
    let held = cache.measured_share.map_or("what it held is not told".to_owned(), |share| {
        format!("held {} of the prompt tokens{by}", percent(share))
    });
    let expected = cache.expected_share.map_or(String::new(), |share| format!(", {} expected", percent(share)));
    format!("{reset}; {held}{expected}")
}

fn server(summary: &Summary) -> Option<String> {
    let t = &summary.telemetry;
    let count = |value: Option<f64>, what: &str| value.map(|n| format!("{n:.0} {what}"));
    let kv = t.peak_kv_usage.map(|share| format!("{} of the KV cache", percent(share)));
    let peaks = joined([count(t.peak_running, "running"), count(t.peak_waiting, "waiting"), kv]);
    let accepted = t.acceptance_rate.map_or(String::new(), |rate| format!(" ({} of the drafts)", percent(rate)));
    let speculation = t.acceptance_length.map(|length| format!("acceptance length {length:.2}{accepted}"));
    joined([peaks.map(|peaks| format!("peaks of {peaks}")), count(t.preemptions, "preemptions"), speculation])
}

fn verdict(summary: &Summary) -> Option<String> {
    let word = match summary.standing {
        Standing::Unjudged => return None,
        // Its reason begins with the word.
        Standing::Saturated => return summary.because.clone(),
        Standing::Partial => "partial",
        standing => standing.word(),
    };
    Some(summary.because.as_ref().map_or(word.to_owned(), |because| format!("{word}: {because}")))
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{at_rate, failed, level, records};
    use super::super::level::Level;
    use super::super::text::WIDTH;
    use super::*;
    use crate::load::ErrorClass;
    use crate::rig::{CacheUse, Telemetry};

    fn shown(level: &Level) -> String {
        let text = block(&level.meta, &Summary::of(level));
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        text
    }

    #[test]
    fn a_level_with_promises() {
        insta::assert_snapshot!(shown(&at_rate(20.0, 0.3, "ttft_p99=350ms,tpot_p99=50ms")), @r#"
        target      tiny at http://127.0.0.1:8000
        workload    random, 200 tokens in, 20 out; seed 7
        offered     20.0 req/s: 200 requests due within 10.0 s, which is 20.0 req/s
        achieved    20.0 req/s; 200 completed, 0 failed; at most 12 in flight

        ms                 p50       p90       p95       p99      mean     count
        ttft               360       420       420       420       360       200
        tpot              10.0      10.0      10.0      10.0      10.0       200
        itl               10.0      10.0      10.0      10.0      10.0      3800
        e2e                550       610       610       610       550       200

        tokens      400 tok/s out, 400 in its busiest second, 4000 tok/s in, 40000 in
                    and 4000 out in total
        goodput     8.00 req/s, 40 % of the achieved rate, within ttft <= 350 ms, tpot
                    <= 50.0 ms
        cache       emptied before; held 1 % of the prompt tokens by the server's
                    counters, 0 % expected
        server      peaks of 12 running, 3 waiting, 44 % of the KV cache, 0 preemptions
        client      sends lagged 0.2 ms (p99), 0.2 ms at most
        verdict     fail: 120 of 200 requests broke ttft_p99 <= 350 ms
        "#);
    }

    #[test]
    fn a_level_of_which_half_fails_without_promises_or_telemetry() {
        let half = |r: crate::load::RequestRecord| match r.id % 4 {
            1 => failed(r.id, r.due.0, ErrorClass::Unavailable),
            3 => failed(r.id, r.due.0, ErrorClass::Cut),
            _ => r,
        };
        let records = records(20.0, 0.3).into_iter().map(half).collect();
        let cache = CacheUse { expected_share: Some(0.5), measured_share: Some(0.0), ..CacheUse::default() };
        let bare = Level { cache, telemetry: Telemetry::default(), ..level(Offered::Users(20), records, "") };
        insta::assert_snapshot!(shown(&bare), @r#"
        target      tiny at http://127.0.0.1:8000
        workload    random, 200 tokens in, 20 out; seed 7
        offered     20 users: 200 requests due within 10.0 s, which is 20.0 req/s
        achieved    10.0 req/s; 100 completed, 100 failed (50 cut, 50 unavailable); at
                    most 66 in flight

        ms                 p50       p90       p95       p99      mean     count
        ttft               360       420       420       420       360       100
        tpot              10.0      10.0      10.0      10.0      10.0       100
        itl               10.0      10.0      10.0      10.0      10.0      1900
        e2e                550       610       610       610       550       100

        tokens      200 tok/s out, 200 in its busiest second, 2000 tok/s in, 20000 in
                    and 2000 out in total
        cache       not emptied before; held 0 % of the prompt tokens, 50 % expected
        client      sends lagged 0.2 ms (p99), 0.2 ms at most
        verdict     errors: 100 of 200 requests failed (50 cut, 50 unavailable)
        warning     the prefix cache held 0 % of the prompt tokens, less than the 50 %
                    that the workload shares: TTFT is longer than in production. Check
                    that prefix caching is on and that the KV cache is large enough
        warning     100 of 200 requests have no whole answer: the latencies are those of
                    the others alone
        "#);
    }

    #[test]
    fn nothing_answered_and_interrupted() {
        let none = vec![failed(0, 2.5, ErrorClass::Cut)];
        let level = Level { partial: true, ended: Seconds(3.0), ..level(Offered::AllAtOnce(1), none, "ttft_p99=1s") };
        insta::assert_snapshot!(shown(&level), @r#"
        target      tiny at http://127.0.0.1:8000
        workload    random, 200 tokens in, 20 out; seed 7
        offered     1 at once: 1 request due within 1.0 s (partial)
        achieved    0 req/s; 0 completed, 1 failed (1 cut); at most 1 in flight

        ms                 p50       p90       p95       p99      mean     count
        ttft                 -         -         -         -         -         0
        tpot                 -         -         -         -         -         0
        itl                  -         -         -         -         -         0
        e2e                  -         -         -         -         -         0

        tokens      0.0 tok/s out, 0.0 tok/s in, 0 in and 0 out in total
        goodput     0 req/s, within ttft <= 1.0 s
        cache       emptied before; held 1 % of the prompt tokens by the server's
                    counters, 0 % expected
        server      peaks of 12 running, 3 waiting, 44 % of the KV cache, 0 preemptions
        client      sends lagged 0.2 ms (p99), 0.2 ms at most
        verdict     partial: interrupted after 1.0 s of a window of 10.0 s
        "#);
    }
}
