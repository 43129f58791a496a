//! Charts as SVG: axes, scales and marks. Text stays text, colours are classes of the page's style, and each mark says its numbers.

use std::fmt::Write;

use super::escaped;

/// Not wider than what a telephone shows with its letters still legible.
const WIDTH: f64 = 480.0;
const TOP: f64 = 12.0;
/// Two rows of names.
const NAMES: f64 = 34.0;
const RIGHT: f64 = 18.0;
const BOTTOM: f64 = 46.0;
/// About the width of a character of a label.
const CHARACTER: f64 = 7.0;
/// The width of a bold character.
const BOLD: f64 = 8.5;
/// A scale is logarithmic where the largest value is more than so many times the smallest.
const DECADES: f64 = 8.0;

/// One direction of a chart.
pub(super) struct Axis {
    label: String,
    from: f64,
    to: f64,
    log: bool,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// A scale that holds these numbers with some room.
    pub(super) fn over(label: &str, values: impl IntoIterator<Item = f64>) -> Self {
        let finite = values.into_iter().filter(|v| v.is_finite());
        let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        let (low, high) = if low > high { (0.0, 1.0) } else { (low, high) };
        if low > 0.0 && high / low > DECADES {
            let (from, to) = (low / 1.15, high * 1.15);
            return Self { label: label.to_owned(), from, to, log: true, ticks: log_ticks(from, to) };
        }
        let room = if high > low { 0.08 * (high - low) } else { 0.1 * high.abs().max(1e-9) };
        let from = if low >= 0.0 && low < 0.5 * high { 0.0 } else { low - room };
        Self::between(label, from, high + room)
    }

    /// A linear scale.
    pub(super) fn between(label: &str, from: f64, to: f64) -> Self {
        Self { label: label.to_owned(), from, to, log: false, ticks: linear_ticks(from, to) }
    }

    /// Words at 0, 1, 2 and so on.
    pub(super) fn words(label: &str, words: &[String]) -> Self {
        let ticks = words.iter().enumerate().map(|(i, word)| (i as f64, word.clone())).collect();
        Self { label: label.to_owned(), from: -0.5, to: words.len() as f64 - 0.5, log: false, ticks }
    }

    /// From where to where it goes.
    pub(super) fn span(&self) -> (f64, f64) {
        (self.from, self.to)
    }

    /// Where a value lies, 0 to 1; values beyond an end lie on it.
    fn share(&self, value: f64) -> f64 {
        let scaled = |v: f64| if self.log { v.max(1e-12).ln() } else { v };
        let (from, to) = (scaled(self.from), scaled(self.to));
        ((scaled(value) - from) / (to - from).max(1e-12)).clamp(0.0, 1.0)
    }
}

fn linear_ticks(from: f64, to: f64) -> Vec<(f64, String)> {
    let rough = (to - from).max(1e-12) / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|step| *step >= rough).unwrap_or(rough);
    let first = (from / step).ceil() as i64;
    let last = (to / step).floor() as i64;
    (first..=last).take(12).map(|k| (k as f64 * step, number(k as f64 * step))).collect()
}

fn log_ticks(from: f64, to: f64) -> Vec<(f64, String)> {
    let decades = (from.log10().floor() as i32)..=(to.log10().ceil() as i32);
    let with = |mantissas: &[f64]| -> Vec<(f64, String)> {
        let all = decades.clone().flat_map(|d| mantissas.iter().map(move |m| m * 10f64.powi(d)));
        all.filter(|v| *v >= from && *v <= to).map(|v| (v, number(v))).collect()
    };
    let fine = with(&[1.0, 2.0, 5.0]);
    if fine.len() <= 7 { fine } else { with(&[1.0]) }
}

/// Three digits that count, without zeros behind the point.
pub(super) fn number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0".to_owned();
    }
    let decimals = (2 - value.abs().log10().floor() as i32).clamp(0, 6) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A chart that is being drawn.
pub(super) struct Chart {
    title: String,
    x: Axis,
    y: Axis,
    height: f64,
    left: f64,
    top: f64,
    marks: String,
    labels: usize,
}

impl Chart {
    pub(super) fn new(title: &str, x: Axis, y: Axis, height: f64) -> Self {
        let widest = y.ticks.iter().map(|(_, text)| text.chars().count()).max().unwrap_or(0);
        // The label on its side fits too.
        let height = height.max(y.label.chars().count() as f64 * CHARACTER + BOTTOM);
        let left = widest as f64 * CHARACTER + if y.label.is_empty() { 14.0 } else { 34.0 };
        Self { title: title.to_owned(), x, y, height, left, top: TOP, marks: String::new(), labels: 0 }
    }

    /// One with room above it for the names of [`Self::upright`] lines.
    pub(super) fn named(self) -> Self {
        Self { top: NAMES, ..self }
    }

    fn place(&self, x: f64, y: f64) -> (f64, f64) {
        let (wide, high) = (WIDTH - RIGHT - self.left, self.height - self.top - BOTTOM);
        (self.left + self.x.share(x) * wide, self.top + (1.0 - self.y.share(y)) * high)
    }

    // Writing to a String cannot fail, here and below.
    fn draw(&mut self, mark: std::fmt::Arguments<'_>) {
        let _ = self.marks.write_fmt(mark);
    }

    /// A mark of such a path, `aside` pixels right of its place, with what it says.
    pub(super) fn mark(&mut self, (x, y): (f64, f64), aside: f64, shape: &str, class: &str, says: &str) {
        let (x, y) = self.place(x, y);
        // The same path, from here instead of from the corner.
        let path = shape.trim_start_matches('M');
        let (x, says) = (x + aside, escaped(says));
        self.draw(format_args!("<path class=\"{class}\" d=\"M{x:.1} {y:.1}m{path}\"><title>{says}</title></path>"));
    }

    pub(super) fn error_bar(&mut self, x: f64, aside: f64, (low, high): (f64, f64), class: &str) {
        let ((x, from), (_, to)) = (self.place(x, low), self.place(x, high));
        let (x, left, cap) = (x + aside, x + aside - 4.0, 8.0);
        self.draw(format_args!(
            "<path class=\"bar {class}\" d=\"M{x:.1} {from:.1}V{to:.1}M{left:.1} {from:.1}h{cap}M{left:.1} {to:.1}h{cap}\"/>"
        ));
    }

    /// A lying error bar.
    pub(super) fn spread(&mut self, (low, high): (f64, f64), y: f64, class: &str) {
        let ((from, y), (to, _)) = (self.place(low, y), self.place(high, y));
        let (top, cap) = (y - 5.0, 10.0);
        self.draw(format_args!(
            "<path class=\"bar {class}\" d=\"M{from:.1} {y:.1}H{to:.1}M{from:.1} {top:.1}v{cap}M{to:.1} {top:.1}v{cap}\"/>"
        ));
    }

    /// A filled box between two corners.
    pub(super) fn area(&mut self, from: (f64, f64), to: (f64, f64), class: &str, says: &str) {
        let ((x1, y1), (x2, y2)) = (self.place(from.0, from.1), self.place(to.0, to.1));
        let (x, y, wide, high) = (x1.min(x2), y1.min(y2), (x2 - x1).abs().max(0.6), (y2 - y1).abs());
        let says = if says.is_empty() { String::new() } else { format!("<title>{}</title>", escaped(says)) };
        self.draw(format_args!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"{high:.1}\">{says}</rect>"
        ));
    }

    /// Words in the middle of a place.
    pub(super) fn text(&mut self, at: (f64, f64), text: &str, class: &str) {
        let (x, y) = self.place(at.0, at.1);
        let (y, text) = (y + 4.0, escaped(text));
        self.draw(format_args!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{text}</text>"
        ));
    }

    pub(super) fn line(&mut self, points: impl IntoIterator<Item = (f64, f64)>, class: &str) {
        let mut path = String::new();
        for (x, y) in points {
            let (x, y) = self.place(x, y);
            let _ = write!(path, "{}{x:.1} {y:.1}", if path.is_empty() { "M" } else { "L" });
        }
        self.draw(format_args!("<path class=\"line {class}\" d=\"{path}\"/>"));
    }

    /// What lies between two lines.
    pub(super) fn band(&mut self, points: &[(f64, f64, f64)], class: &str, says: &str) {
        let above = points.iter().map(|(x, _, high)| (*x, *high));
        let below = points.iter().rev().map(|(x, low, _)| (*x, *low));
        let corners = above.chain(below).map(|at| self.place(at.0, at.1));
        let path: Vec<String> = corners.map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        let (path, says) = (path.join("L"), escaped(says));
        self.draw(format_args!("<path class=\"band {class}\" d=\"M{path}z\"><title>{says}</title></path>"));
    }

    /// Many small dots as one path.
    pub(super) fn dots(&mut self, points: impl IntoIterator<Item = (f64, f64)>, class: &str) {
        let mut path = String::new();
        for (x, y) in points {
            let (x, y) = self.place(x, y);
            let _ = write!(path, "M{x:.1} {y:.1}h0");
        }
        self.draw(format_args!("<path class=\"dots {class}\" d=\"{path}\"/>"));
    }

    /// A line across the chart at a height, with its name at its beginning: what is near a limit mostly lies at its end. The name stands above
    /// the line, or below it where marks stand on it.
    pub(super) fn level(&mut self, y: f64, label: &str, class: &str, below: bool) {
        let ((_, at), to) = (self.place(self.x.from, y), WIDTH - RIGHT);
        let (left, beside, above, label) =
            (self.left, self.left + 5.0, at + if below { 18.0 } else { -5.0 }, escaped(label));
        self.draw(format_args!(
            "<path class=\"line {class}\" d=\"M{left:.1} {at:.1}H{to:.1}\"/><text class=\"{class}\" x=\"{beside:.1}\" y=\"{above:.1}\">{label}</text>"
        ));
    }

    /// A line from bottom to top, with its name above the chart; the next name stands below this one.
    pub(super) fn upright(&mut self, x: f64, label: &str, class: &str) {
        let (at, _) = self.place(x, self.y.from);
        let (bottom, row) = (self.height - BOTTOM, 12.0 + 14.0 * (self.labels % 2) as f64);
        self.labels += 1;
        let room = WIDTH - at;
        let anchor = if room < at && room < label.chars().count() as f64 * BOLD { "end" } else { "start" };
        let beside = if anchor == "end" { at - 4.0 } else { at + 4.0 };
        let (top, label) = (row - 9.0, escaped(label));
        self.draw(format_args!(
            "<path class=\"line {class}\" d=\"M{at:.1} {bottom:.1}V{top:.1}\"/><text class=\"{class}\" x=\"{beside:.1}\" y=\"{row:.1}\" text-anchor=\"{anchor}\">{label}</text>"
        ));
    }

    pub(super) fn svg(&self) -> String {
        let (height, left, top) = (self.height, self.left, self.top);
        let (right, bottom) = (WIDTH - RIGHT, height - BOTTOM);
        let mut svg =
            format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">", escaped(&self.title));
        for (value, text) in &self.x.ticks {
            let (x, _) = self.place(*value, self.y.from);
            let (y, text) = (bottom + 17.0, escaped(text));
            let _ = write!(
                svg,
                "<path class=\"grid\" d=\"M{x:.1} {top}V{bottom:.1}\"/><text class=\"tick\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{text}</text>"
            );
        }
        for (value, text) in &self.y.ticks {
            let (_, y) = self.place(self.x.from, *value);
            let (x, low, text) = (left - 7.0, y + 4.0, escaped(text));
            let _ = write!(
                svg,
                "<path class=\"grid\" d=\"M{left:.1} {y:.1}H{right:.1}\"/><text class=\"tick\" x=\"{x:.1}\" y=\"{low:.1}\" text-anchor=\"end\">{text}</text>"
            );
        }
        let (middle, low, high) = ((left + right) / 2.0, height - 8.0, (self.top + bottom) / 2.0);
        let (x, y) = (escaped(&self.x.label), escaped(&self.y.label));
        let _ = write!(
            svg,
            "<path class=\"axis\" d=\"M{left:.1} {top}V{bottom:.1}H{right:.1}\"/>{}<text class=\"label\" x=\"{middle:.1}\" y=\"{low:.1}\" text-anchor=\"middle\">{x}</text><text class=\"label\" transform=\"translate(13 {high:.1}) rotate(-90)\" text-anchor=\"middle\">{y}</text></svg>",
            self.marks
        );
        svg
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_lie_within() {
        let words = |axis: Axis| axis.ticks.into_iter().map(|(_, word)| word).collect::<Vec<_>>().join(" ");
        assert_eq!(words(Axis::over("", [13.7, 16.2])), "14 15 16");
        assert_eq!(words(Axis::over("", [2.0, 20.0])), "2 5 10 20");
        assert_eq!(words(Axis::over("", [0.0, 1.0])), "0 0.5 1");
        assert_eq!(words(Axis::over("", [])), "0 0.5 1");
        assert!(!words(Axis::over("", [5.0, 5.0, f64::NAN])).is_empty());
    }

    #[test]
    fn what_lies_beyond_a_scale_is_drawn_on_its_end() {
        let axis = Axis::over("", [1.0, 100.0]);
        assert_eq!((axis.share(1e9), axis.share(0.0)), (1.0, 0.0));
        assert!((axis.share(10.0) - 0.5).abs() < 1e-9);
    }
}
