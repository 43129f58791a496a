//! `[slo]` and its form on the command line: which quantile of which latency stays below which limit.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::measure;
use super::plan::{Limit, Metric};
use super::reader::{self, Place};
use super::reading;
use super::suggest;
use crate::problems::{self, Problem};
use autotune_records::units::Seconds;

/// A regular expression of every key, for the schema; bounds of the quantile are the reader's business.
pub const KEY_PATTERN: &str = "^(ttft|tpot|itl|e2e)_p[0-9]{1,2}([._][0-9]{1,3})?$";

/// The percentiles that can be promised. Beyond the upper one a probe would need hundreds of thousands of requests.
const PERCENTILES: std::ops::RangeInclusive<f64> = 1.0..=99.999;

/// Reads every limit; `None` after a mistake.
pub fn read(place: &Place, table: &DeTable, problems: &mut Vec<Problem>) -> Option<Vec<Limit>> {
    let before = problems.len();
    let mut limits: Vec<Limit> = Vec::new();
    for (name, span, value) in reader::in_order(table) {
        let (metric, quantile) = match key(name, &span, value.get_ref()) {
            Ok(read) => read,
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        let Some(limit) = reading::time(false, &format!("slo.{name}"), value, problems) else { continue };
        let limit = Limit { metric, quantile, at_most: Seconds::from(limit) };
        if limits.iter().any(|other| other.metric == metric && other.quantile == quantile) {
            let message = format!("`{name}` promises the same quantile as a key above");
            let hint = format!("keep one `{}`", limit.key());
            problems.push(Problem::new(&span, message, "promised twice", hint));
        }
        limits.push(limit);
    }
    if limits.is_empty() && problems.len() == before {
        let hint = "promise at least one latency, such as ttft_p99 = \"1s\"";
        problems.push(Problem::new(&place.span, "`[slo]` promises nothing", "no limits", hint));
    }
    (problems.len() == before).then_some(limits)
}

/// Reads `ttft_p99=500ms,tpot_p99=50ms`.
pub fn from_flag(text: &str) -> Result<Vec<Limit>, String> {
    let one = |limits: Vec<Limit>| match <[Limit; 1]>::try_from(limits) {
        Ok([limit]) => Ok(limit),
        Err(limits) => Err(format!("`{}` has several limits: keep one; `bench --find` takes several", limits[0].key())),
    };
    lists_from_flag(text)?.into_iter().map(one).collect()
}

/// Reads `ttft_p99=500ms,1s,tpot_p99=50ms`: for each key the limits that stand behind it, ascending.
pub fn lists_from_flag(text: &str) -> Result<Vec<Vec<Limit>>, String> {
    const EXAMPLE: &str = "such as ttft_p99=500ms,tpot_p99=50ms";
    let sentence = |problem: Problem| format!("{}: {}", problem.message, problem.hint);
    let mut lists: Vec<Vec<Limit>> = Vec::new();
    let mut key_before: Option<&str> = None;
    for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let named = item.split_once('=').map(|(name, limit)| (name.trim(), limit.trim()));
        // A bare duration is one more limit of the key before it.
        let more = key_before.filter(|_| item.starts_with(|c: char| c.is_ascii_digit()));
        let Some((name, limit)) = named.or_else(|| more.map(|name| (name, item))) else {
            return Err(format!("`{item}` is no limit: write a key, `=` and a duration, {EXAMPLE}"));
        };
        let value = Spanned::new(0..item.len(), DeValue::String(limit.into()));
        let (metric, quantile) = key(name, &(0..item.len()), value.get_ref()).map_err(sentence)?;
        let mut problems = Vec::new();
        let Some(limit) = reading::time(false, name, &value, &mut problems) else {
            let unreadable = || format!("`{name}` has no duration: write one, {EXAMPLE}");
            return Err(problems.into_iter().next().map_or_else(unreadable, sentence));
        };
        let limit = Limit { metric, quantile, at_most: Seconds::from(limit) };
        let before = lists.iter_mut().find(|list| list[0].metric == metric && list[0].quantile == quantile);
        match before {
            Some(list) if named.is_none() => list.push(limit),
            Some(_) => return Err(format!("`{name}` is promised twice: keep one of the two")),
            None => lists.push(vec![limit]),
        }
        key_before = Some(name);
    }
    for list in &mut lists {
        list.sort_by(|a, b| a.at_most.0.total_cmp(&b.at_most.0));
        if list.windows(2).any(|pair| pair[0].at_most == pair[1].at_most) {
            return Err(format!("`{}` has the same limit twice: keep one of the two", list[0].key()));
        }
    }
    if lists.is_empty() {
        Err(format!("no limit is given: promise at least one latency, {EXAMPLE}"))
    } else {
        Ok(lists)
    }
}

/// Reads `ttft_p99` or `ttft_p99_9`: the metric and the quantile in (0, 1).
fn key(name: &str, span: &Range<usize>, value: &DeValue) -> Result<(Metric, f64), Problem> {
    let wrong = |message: String, label: &str, hint: String| Err(Problem::new(span, message, label, hint));
    let Some((metric_name, percentile)) = name.split_once('_') else {
        let known = Metric::ALL.iter().any(|metric| metric.name() == name);
        let metric = if known { name } else { "ttft" };
        let hint = format!("name a metric and a percentile, such as {metric}_p99");
        return wrong(format!("`{name}` is no latency limit"), "no percentile", hint);
    };
    let names = || Metric::ALL.iter().map(|metric| metric.name());
    let Some(metric) = Metric::ALL.into_iter().find(|metric| metric.name() == metric_name) else {
        let hint = match suggest::closest(metric_name, names()) {
            Some(near) => format!("did you mean `{near}_{percentile}`?"),
            None => format!("the metrics are {}, as in ttft_p99", problems::list(names(), "and")),
        };
        return wrong(format!("unknown metric `{metric_name}`"), "unknown metric", hint);
    };
    let example = format!("write a percentile from p1 to p99_999, such as {metric_name}_p99 or {metric_name}_p99_9");
    let message = format!("`{name}` has no valid percentile");
    let Some(digits) = percentile.strip_prefix('p') else { return wrong(message, "not a percentile", example) };
    if let (DeValue::Table(_), true) = (value, digits.bytes().all(|b| b.is_ascii_digit())) {
        // `ttft_p99.9 = ...` without quotes is a dotted key: a table `ttft_p99` with the key `9`.
        let hint = format!("spell decimals with an underscore, as in {name}_9");
        return wrong(format!("`{name}` holds a table"), "a dot begins a table here", hint);
    }
    let number = digits.replacen('_', ".", 1);
    let decimals = number.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let written_out = number.bytes().all(|b| b.is_ascii_digit() || b == b'.') && !number.ends_with('.');
    let inside = number.parse().is_ok_and(|percentile| PERCENTILES.contains(&percentile));
    match measure::hundredth(&number) {
        Some(quantile) if written_out && inside && decimals <= 3 => Ok((metric, quantile)),
        Some(_) if written_out && inside => wrong(message, "at most three decimals", example),
        Some(_) if written_out => wrong(message, "out of range", example),
        _ => wrong(message, "not a percentile", example),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_name_a_metric_and_a_percentile() {
        let read = |name| key(name, &(0..1), &DeValue::Boolean(true)).map_err(|problem| problem.label);
        assert_eq!(read("ttft_p99"), Ok((Metric::Ttft, 0.99)));
        assert_eq!(read("tpot_p99_9"), Ok((Metric::Tpot, 0.999)));
        assert_eq!(read("e2e_p99.9"), Ok((Metric::E2e, 0.999)));
        assert_eq!(read("itl_p50"), Ok((Metric::Itl, 0.5)));
        assert_eq!(read("itl_p0"), Err("out of range".into()));
        assert_eq!(read("itl_p100"), Err("out of range".into()));
        assert_eq!(read("itl_p99_9999"), Err("out of range".into()));
        assert_eq!(read("itl_p50_1234"), Err("at most three decimals".into()));
        assert_eq!(read("itl_p9_9_9"), Err("not a percentile".into()));
        assert_eq!(read("itl_99"), Err("not a percentile".into()));
        assert_eq!(read("itl_p"), Err("not a percentile".into()));
    }

    #[test]
    fn a_limit_spells_its_key_as_it_was_read() {
        for name in ["ttft_p99", "ttft_p99_9", "itl_p99_999", "e2e_p1", "tpot_p57_3"] {
            let (metric, quantile) = key(name, &(0..1), &DeValue::Boolean(true)).unwrap();
            assert_eq!(Limit { metric, quantile, at_most: Seconds(1.0) }.key(), name);
        }
    }

    #[test]
    fn a_flag_spells_limits_as_the_space_file_does() {
        let limits = from_flag("ttft_p99=500ms, tpot_p99_9=1m30s,").unwrap();
        let read: Vec<_> = limits.iter().map(|l| (l.key(), l.at_most)).collect();
        assert_eq!(read, [("ttft_p99".into(), Seconds(0.5)), ("tpot_p99_9".into(), Seconds(90.0))]);
    }

    #[test]
    fn a_key_may_have_several_limits_where_a_curve_is_asked_for() {
        let read = |text| {
            let lists = lists_from_flag(text).unwrap();
            lists.iter().map(|list| (list[0].key(), list.iter().map(|l| l.at_most.0).collect())).collect::<Vec<_>>()
        };
        let lists: Vec<(String, Vec<f64>)> = read("ttft_p95=800ms,200ms, 0.4s,tpot_p99=30ms");
        assert_eq!(lists, [("ttft_p95".to_owned(), vec![0.2, 0.4, 0.8]), ("tpot_p99".to_owned(), vec![0.03])]);
        assert_eq!(
            lists_from_flag("ttft_p95=1s,1000ms").unwrap_err(),
            "`ttft_p95` has the same limit twice: keep one of the two"
        );
        assert!(from_flag("ttft_p95=1s,2s").unwrap_err().contains("`bench --find` takes several"));
        assert!(lists_from_flag("5s").unwrap_err().contains("`5s` is no limit"));
    }

    #[test]
    fn mistakes_in_a_flag_come_with_a_remedy() {
        let says = |text| from_flag(text).unwrap_err();
        insta::assert_snapshot!(
            ["", "ttft:200", "ttft=1s", "tfft_p99=1s", "ttft_p99=500", "ttft_p99=5 sec", "itl_p50=1s,itl_p50=2s"]
                .map(says)
                .join("\n"),
            @r#"
        no limit is given: promise at least one latency, such as ttft_p99=500ms,tpot_p99=50ms
        `ttft:200` is no limit: write a key, `=` and a duration, such as ttft_p99=500ms,tpot_p99=50ms
        `ttft` is no latency limit: name a metric and a percentile, such as ttft_p99
        unknown metric `tfft`: did you mean `ttft_p99`?
        `ttft_p99` has no unit: add a unit: "500s" for seconds or "500ms" for milliseconds
        `ttft_p99` has an unknown unit: write "5s"
        `itl_p50` is promised twice: keep one of the two
        "#
        );
    }
}
