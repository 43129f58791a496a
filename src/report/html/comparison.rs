//! The page of a comparison: the answer, each limit's quantile over the levels on both sides, the turns, and what the terminal shows.

use super::chart::{Axis, Chart};
use super::{
    BOX, CIRCLE, DASH, DIAMOND, Shell, UPRIGHT, escaped, figure, legend, list, missing, paragraph, promise, shell,
    table, tile, unit,
};
use crate::report::bench::text::{NOTHING, millis, percent};
use crate::report::bench::{Answer, Offered, Status};
use crate::report::comparison::{Comparison, LevelCompared, NAMES, compared, interval, signed, told_by_turn};
use crate::units::Seconds;

/// The colours of A and B, as other pages have them for defaults and the tuned point.
const CLASSES: [&str; 2] = ["defaults", "tuned"];
/// Latencies above so many limits are drawn at the upper end.
const HIGHEST: f64 = 4.0;

/// The page of `report.html` in a comparison's folder.
pub fn comparison_page(comparison: &Comparison) -> String {
    let sections = [
        ("answer", "Answer", "The answer", answer(comparison)),
        ("limits", "Limits", "Each limit over the levels", limits(comparison)),
        ("turns", "Turns", "By turn of a conversation", turns(comparison)),
        ("levels", "Levels", "What differs, and each level, as the terminal shows them", terminal(comparison)),
    ];
    let (headline, rest) = comparison.because.split_once("; ").unwrap_or((&comparison.because, ""));
    let sentence = |text: &str| {
        let mut characters = text.chars();
        let first: String = characters.next().into_iter().flat_map(char::to_uppercase).collect();
        format!("{first}{}.", characters.as_str())
    };
    let lead = if rest.is_empty() { String::new() } else { paragraph(&sentence(rest)) };
    let sides: Vec<String> =
        NAMES.iter().zip(&comparison.sides).map(|(name, side)| format!("{name}: {}", side.what)).collect();
    shell(&Shell {
        title: &format!("{} against {}", comparison.sides[0].what, comparison.sides[1].what),
        source: &escaped(&sides.join(" · ")),
        headline: &sentence(headline),
        lead: &lead,
        sections: &sections,
    })
}

fn answer(comparison: &Comparison) -> String {
    let mut tiles = String::new();
    for ((name, class), answer) in NAMES.iter().zip(CLASSES).zip(&comparison.answers) {
        let (number, says) = kept(comparison, answer);
        tiles += &tile(class, name, &number, &says);
    }
    let difference = comparison.difference.as_ref();
    let number = difference.map_or("not known".to_owned(), |difference| signed(difference.ratio));
    let says = difference.map_or("no percentage without a limit on each side".to_owned(), interval);
    tiles += &tile("gain", "B against A", &number, &says);
    let sentence = |(name, answer): (&&str, &Answer)| format!("{name}: {}", answer.because);
    let answers: Vec<String> = NAMES.iter().zip(&comparison.answers).map(sentence).collect();
    let warnings: Vec<String> = comparison.warnings.iter().map(|warning| format!("warning: {warning}")).collect();
    format!("<div class=\"tiles\">{tiles}</div>{}{}", list(&answers), list(&warnings))
}

/// The limit of a side in a tile.
fn kept(comparison: &Comparison, answer: &Answer) -> (String, String) {
    let size = |level: f64| match comparison.levels.first().map(|level| level.offered) {
        Some(Offered::Rate(_)) => format!("{level:.2} req/s"),
        _ => format!("{level:.0} users"),
    };
    match (answer.status, answer.level, answer.from.zip(answer.to)) {
        (Status::Found, Some(level), Some((from, to))) => {
            (size(level), format!("90 %: {} to {}", size(from), size(to)))
        }
        (Status::Found, Some(level), None) => (size(level), String::new()),
        (Status::AllKept, ..) => ("all".to_owned(), "every level that was measured".to_owned()),
        (Status::NothingKept, ..) => ("none".to_owned(), "no level that was measured".to_owned()),
        _ => ("not known".to_owned(), "the data do not show that its limit lies between the levels".to_owned()),
    }
}

fn unit_of(comparison: &Comparison) -> &'static str {
    match comparison.levels.first().map(|level| level.offered) {
        Some(Offered::Rate(_)) => "requests per second",
        _ => "users",
    }
}

fn limits(comparison: &Comparison) -> String {
    let charts: String = comparison.limits.iter().map(|(key, at_most)| curves(comparison, key, *at_most)).collect();
    let key = legend(
        &[
            ("defaults full", CIRCLE, "A, measured"),
            ("tuned full", DIAMOND, "B, measured"),
            ("band defaults", BOX, "A, 90 % over the sweeps"),
            ("band tuned", BOX, "B, 90 % over the sweeps"),
            ("bar", UPRIGHT, "90 % interval of a side's limit"),
            ("line limit", DASH, "the limit"),
        ],
        &charts,
    );
    format!("{key}<div class=\"figures\">{charts}</div>")
}

/// One limit: its quantile on both sides over the levels.
fn curves(comparison: &Comparison, key: &str, at_most: Seconds) -> String {
    let title = format!("{} against its limit", promise(key));
    let (name, scale) = unit(at_most.0);
    let drawn = |value: f64| value.min(at_most.0 * HIGHEST * scale);
    // Of each side: the level, and the quantile with its interval.
    let points = |side: usize| -> Vec<(f64, [f64; 3])> {
        let at = |level: &LevelCompared| {
            let quantile = level.sides[side].quantiles.get(key)?;
            Some((level.offered.size()?, [quantile.value, quantile.from, quantile.to].map(|s| s.0 * scale)))
        };
        comparison.levels.iter().filter_map(at).collect()
    };
    let both = [points(0), points(1)];
    if both.iter().all(Vec::is_empty) {
        return figure(&title, "", "Not measured: no window had enough answers.");
    }
    let sizes = comparison.levels.iter().filter_map(|level| level.offered.size());
    let values = both.iter().flatten().flat_map(|(_, values)| values.map(drawn)).chain([at_most.0 * scale * 1.05]);
    let x = Axis::over(unit_of(comparison), sizes);
    let y = Axis::over(&format!("{}, {name}", promise(key)), values);
    let low = y.span().0;
    let mut chart = Chart::new(&title, x, y, 320.0).named();
    for (points, class) in both.iter().zip(CLASSES) {
        let band: Vec<(f64, f64, f64)> =
            points.iter().map(|(size, [_, from, to])| (*size, drawn(*from), drawn(*to))).collect();
        if band.len() > 1 {
            chart.band(&band, class, "90 % over the sweeps");
        }
    }
    chart.level(at_most.0 * scale, &format!("limit {at_most}"), "limit", false);
    for (((points, class), side), shape) in both.iter().zip(CLASSES).zip(NAMES).zip([CIRCLE, DIAMOND]) {
        chart.line(points.iter().map(|(size, [value, ..])| (*size, drawn(*value))), class);
        for (size, [value, from, to]) in points {
            let says = format!("{side} at {size}: {value:.3} {name} (90 %: {from:.3} to {to:.3})");
            chart.mark((*size, drawn(*value)), 0.0, shape, &format!("{class} full"), &says);
        }
    }
    for ((answer, class), side) in comparison.answers.iter().zip(CLASSES).zip(NAMES) {
        let Some(level) = answer.level.filter(|_| answer.status == Status::Found) else { continue };
        chart.upright(level, &format!("{side}: {}", kept(comparison, answer).0), class);
        if let Some(ends) = answer.from.zip(answer.to) {
            chart.spread(ends, low, class);
        }
    }
    figure(&title, &chart.svg(), "")
}

fn turns(comparison: &Comparison) -> String {
    let Some(level) = told_by_turn(comparison) else {
        return missing("The traffic has no conversations of several turns.");
    };
    let most = level.sides.iter().flat_map(|cell| &cell.turns).map(|turn| turn.turn).max().unwrap_or(0);
    let (name, scale) = ("ms", 1e3);
    let points = |side: usize| level.sides[side].turns.iter().map(move |t| (f64::from(t.turn), t.ttft));
    let values = [0, 1].into_iter().flat_map(points).flat_map(|(_, ttft)| [ttft.median.0 * scale, ttft.p99.0 * scale]);
    let x = Axis::between("turn", 0.5, f64::from(most) + 0.5);
    let mut chart = Chart::new("TTFT by turn", x, Axis::over(&format!("TTFT, {name}"), values), 300.0);
    for ((side, class), shape) in [0, 1].into_iter().zip(CLASSES).zip([CIRCLE, DIAMOND]) {
        chart.line(points(side).map(|(turn, ttft)| (turn, ttft.median.0 * scale)), class);
        for (turn, ttft) in points(side) {
            let says = format!(
                "{}, turn {turn}: p50 {:.1} ms, p99 {:.1} ms",
                NAMES[side],
                ttft.median.millis(),
                ttft.p99.millis()
            );
            chart.mark((turn, ttft.median.0 * scale), 0.0, shape, &format!("{class} full"), &says);
            chart.mark((turn, ttft.p99.0 * scale), 0.0, shape, &format!("{class} hollow"), &says);
        }
    }
    let svg = chart.svg();
    let key = legend(
        &[
            ("defaults full", CIRCLE, "A, p50"),
            ("defaults hollow", CIRCLE, "A, p99"),
            ("tuned full", DIAMOND, "B, p50"),
            ("tuned hollow", DIAMOND, "B, p99"),
        ],
        &svg,
    );
    let mut head = vec!["turn".to_owned()];
    for side in NAMES {
        head.extend(["count", "p50", "p99", "cached"].map(|column| format!("{side} {column}")));
    }
    let row = |turn: u32| {
        let mut row = vec![turn.to_string()];
        for cell in &level.sides {
            let seen = cell.turns.iter().find(|seen| seen.turn == turn);
            row.push(seen.map_or(NOTHING.to_owned(), |seen| seen.ttft.observations.to_string()));
            row.push(millis(seen.map(|seen| seen.ttft.median)));
            row.push(millis(seen.map(|seen| seen.ttft.p99)));
            row.push(seen.and_then(|seen| seen.cached_share).map_or(NOTHING.to_owned(), percent));
        }
        row
    };
    let rows: Vec<Vec<String>> = (1..=most).map(row).collect();
    let says = paragraph(&format!("TTFT in ms at {}; compare.json has the turns of every level.", level.offered));
    format!(
        "{says}{key}<div class=\"pair\">{}<div class=\"table\">{}</div></div>",
        figure("TTFT by turn", &svg, ""),
        table(&head, &rows)
    )
}

fn terminal(comparison: &Comparison) -> String {
    let lines: Vec<String> = compared(comparison).lines().map(escaped).collect();
    // Its columns stay, and any part of it may be selected: other boxes of this kind hold commands to copy.
    format!("<pre style=\"white-space: pre; overflow-wrap: normal; user-select: auto\">{}</pre>", lines.join("\n"))
}
