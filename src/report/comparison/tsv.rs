//! `compare.tsv`: the limits and the levels of both sides as rows, for dashboards and spreadsheets.

use super::NAMES;
use super::data::Comparison;
use crate::report::bench::{Offered, Spread};
use crate::report::word;
use crate::units::Seconds;

/// Two rows of kind `breakpoint`, one of kind `difference`, and one of kind `level` for each side and level. A field that nobody knows is empty.
pub fn tsv(comparison: &Comparison) -> String {
    const HEAD: &str = "kind\tside\tunit\tlevel\tfrom\tto\tstatus\tbreaks\tttft_p50_ms\tttft_p95_ms\tttft_p99_ms\t\
tpot_p50_ms\ttpot_p95_ms\ttpot_p99_ms\toutput_tokens_per_second\tcached_share\tacceptance_length\tcompleted\tfailed";
    let columns = HEAD.split('\t').count();
    let unit = match comparison.levels.first().map(|l| l.offered) {
        Some(Offered::Rate(_)) => "requests_per_second",
        _ => "users",
    };
    let number = |n: Option<f64>| n.map_or(String::new(), |n| format!("{}", (n * 1e6).round() / 1e6));
    let row = |mut fields: Vec<String>| {
        fields.resize(columns, String::new());
        fields.join("\t") + "\n"
    };
    let mut text = format!("{HEAD}\n");
    for (name, answer) in NAMES.iter().zip(&comparison.answers) {
        let mut fields = vec!["breakpoint".to_owned(), (*name).to_owned(), unit.to_owned()];
        fields.extend([answer.level, answer.from, answer.to].map(number));
        fields.extend([word(answer.status), answer.binding.clone().unwrap_or_default()]);
        text += &row(fields);
    }
    if let Some(d) = comparison.difference {
        let mut fields = vec!["difference".to_owned(), "B/A-1".to_owned(), "share".to_owned()];
        fields.extend([d.ratio, d.from, d.to].map(|n| number(Some(n))));
        text += &row(fields);
    }
    for level in &comparison.levels {
        for (name, cell) in NAMES.iter().zip(&level.sides) {
            let mut fields =
                vec!["level".to_owned(), (*name).to_owned(), unit.to_owned(), number(level.offered.size())];
            fields.extend([String::new(), String::new(), String::new(), cell.breaks()]);
            let of: [fn(&Spread) -> Seconds; 3] = [|s| s.median, |s| s.p95, |s| s.p99];
            for spread in [cell.ttft, cell.tpot] {
                fields.extend(of.map(|value| number(spread.as_ref().map(|s| value(s).millis()))));
            }
            fields.push(number(cell.output_throughput.map(|r| r.0)));
            fields.extend([cell.cached_share, cell.acceptance_length].map(number));
            fields.extend([cell.completed, cell.failed].map(|n| n.to_string()));
            text += &row(fields);
        }
    }
    text
}
