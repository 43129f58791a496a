//! Prometheus' text format, version 0.0.4.

use std::fmt::Write;

/// What a server says a page of this format is.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page of metrics in the making: families in the order in which they are added, each with its help and type.
#[derive(Debug, Default)]
pub(super) struct Page(String);

/// The labels of a sample, by name.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

impl Page {
    /// A number that only grows while the process lives; its name ends in `_total`.
    pub(super) fn counter(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, "counter", help, &[(&[], value)]);
    }

    /// A number that goes up and down; left out while it is not known.
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: Option<f64>) {
        if let Some(value) = value {
            self.family(name, "gauge", help, &[(&[], value)]);
        }
    }

    /// Gauges of one family that differ in their labels.
    pub(super) fn gauges(&mut self, name: &str, help: &str, samples: &[(Labels<'_>, f64)]) {
        self.family(name, "gauge", help, samples);
    }

    pub(super) fn text(self) -> String {
        self.0
    }

    fn family(&mut self, name: &str, kind: &str, help: &str, samples: &[(Labels<'_>, f64)]) {
        // Infinities and what is not a number could be written, and would poison every sum that is made of them.
        let mut samples = samples.iter().filter(|(_, value)| value.is_finite()).peekable();
        if samples.peek().is_none() {
            return;
        }
        let help = help.replace('\\', r"\\").replace('\n', r"\n");
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            let pairs: Vec<String> =
                labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
            let labels = if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) };
            let _ = writeln!(self.0, "{name}{labels} {value}");
        }
    }
}

/// The value of a label: what would end it or the line has a backslash.
fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_help_type_and_samples() {
        let mut page = Page::default();
        page.counter("a_total", "Some a.", 12.0);
        page.gauge("b_seconds", "A time.", Some(0.25));
        page.gauge("c", "Not known.", None);
        page.gauges("d", "By phase.", &[(&[("phase", "search"), ("x", "y")], 1.0), (&[("phase", "ended")], 0.0)]);
        let text = "# HELP a_total Some a.\n# TYPE a_total counter\na_total 12\n\
                    # HELP b_seconds A time.\n# TYPE b_seconds gauge\nb_seconds 0.25\n\
                    # HELP d By phase.\n# TYPE d gauge\nd{phase=\"search\",x=\"y\"} 1\nd{phase=\"ended\"} 0\n";
        assert_eq!(page.text(), text);
    }

    #[test]
    fn what_would_break_a_line_is_escaped() {
        let mut page = Page::default();
        page.gauges("a", "A \\ and\na \"quote\".", &[(&[("file", "C:\\x\n\"y\"")], 1.0)]);
        let text = "# HELP a A \\\\ and\\na \"quote\".\n# TYPE a gauge\na{file=\"C:\\\\x\\n\\\"y\\\"\"} 1\n";
        assert_eq!(page.text(), text);
    }

    #[test]
    fn what_is_no_number_is_left_out() {
        let mut page = Page::default();
        page.gauge("a", "A.", Some(f64::NAN));
        page.counter("b_total", "B.", f64::INFINITY);
        page.gauges("c", "C.", &[(&[("of", "x")], f64::NEG_INFINITY), (&[("of", "y")], 1e12)]);
        assert_eq!(page.text(), "# HELP c C.\n# TYPE c gauge\nc{of=\"y\"} 1000000000000\n");
    }
}
