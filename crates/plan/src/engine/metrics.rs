//! Reads a page in the Prometheus text format, leniently: a line that makes no sense is left out.

use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq)]
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

impl Sample {
    fn label(&self, label: &str) -> Option<&str> {
        self.labels.iter().find(|(name, _)| name == label).map(|(_, value)| value.as_str())
    }
}

/// A page of metrics, as one scrape of `/metrics` gave it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    samples: Vec<Sample>,
}

impl Page {
    /// Reads a page. Comments and types are passed over: families are often interleaved, and names tell enough.
    pub fn parse(text: &str) -> Self {
        let mut page = Self::default();
        for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
            page.samples.extend(sample(line));
        }
        page
    }

    /// The sum of a metric over all its label sets, as for the engines of one server; not-a-number is no value.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.fold(name, |a, b| a + b)
    }

    /// The sum of a metric over the label sets that have a label with that value.
    pub fn value_with(&self, name: &str, (label, value): (&str, &str)) -> Option<f64> {
        let has = |s: &&Sample| s.name == name && s.label(label) == Some(value) && !s.value.is_nan();
        self.samples.iter().filter(has).map(|s| s.value).reduce(|a, b| a + b)
    }

    /// The sums of a metric by the value of a label, over the label sets that have another label with that value.
    pub fn by_label(&self, name: &str, label: &str, with: Option<(&str, &str)>) -> BTreeMap<String, f64> {
        let has = |s: &&Sample| s.name == name && !s.value.is_nan() && with.is_none_or(|(l, v)| s.label(l) == Some(v));
        let mut sums = BTreeMap::new();
        for sample in self.samples.iter().filter(has) {
            if let Some(value) = sample.label(label) {
                *sums.entry(value.to_owned()).or_insert(0.0) += sample.value;
            }
        }
        sums
    }

    /// The sum of a metric over those of its label sets in which a label that parts the whole is absent or empty.
    pub fn total(&self, name: &str, parts: &str) -> Option<f64> {
        let whole = |s: &&Sample| s.name == name && s.label(parts).unwrap_or_default().is_empty();
        self.samples.iter().filter(whole).map(|s| s.value).reduce(|a, b| a + b)
    }

    /// The largest value of a metric over its label sets: the right reading of a share, which must not be summed.
    pub fn largest(&self, name: &str) -> Option<f64> {
        self.fold(name, f64::max)
    }

    /// A label of the first sample of a metric that has it, as for `vllm:cache_config_info`.
    pub fn label(&self, name: &str, label: &str) -> Option<&str> {
        self.samples.iter().filter(|s| s.name == name).find_map(|s| s.label(label))
    }

    /// Every label of the first sample of a metric.
    pub fn labels(&self, name: &str) -> impl Iterator<Item = (&str, &str)> {
        let first = self.samples.iter().find(|s| s.name == name);
        first.into_iter().flat_map(|s| s.labels.iter()).map(|(name, value)| (name.as_str(), value.as_str()))
    }

    fn fold(&self, name: &str, join: impl Fn(f64, f64) -> f64) -> Option<f64> {
        self.samples.iter().filter(|s| s.name == name && !s.value.is_nan()).map(|s| s.value).reduce(join)
    }
}

/// Reads `name{label="value",...} value [timestamp] [# exemplar]`.
fn sample(line: &str) -> Option<Sample> {
    let end = line.find(|c: char| !(c.is_ascii_alphanumeric() || "_:.".contains(c))).unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let rest_trimmed = rest.trim_start();
    let (labels, rest) = match rest_trimmed.strip_prefix('{') {
        Some(inside) => labels(inside)?,
        None if rest_trimmed.len() == rest.len() => return None,
        None => (Vec::new(), rest_trimmed),
    };
    let mut words = rest.split_ascii_whitespace();
    let value = number(words.next()?)?;
    // An optional timestamp, then nothing or an exemplar; anything else is not a sample.
    let next = match words.next() {
        Some(word) if word.parse::<f64>().is_ok() => words.next(),
        other => other,
    };
    next.is_none_or(|word| word.starts_with('#')).then(|| Sample { name: name.to_owned(), labels, value })
}

/// Rust's own parser knows every spelling of the format (`+Inf`, `NaN`, `1e5`), and `infinity`, which does no harm.
fn number(word: &str) -> Option<f64> {
    word.parse().ok()
}

/// Reads up to the closing brace, and gives what follows it.
fn labels(mut text: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut found = Vec::new();
    loop {
        text = text.trim_start_matches([' ', '\t', ',']);
        if let Some(rest) = text.strip_prefix('}') {
            return Some((found, rest));
        }
        let (name, after) = text.split_once('=')?;
        let (value, after) = quoted(after.trim_start().strip_prefix('"')?)?;
        found.push((name.trim().to_owned(), value));
        text = after;
    }
}

/// Reads a label's value up to its closing quote; a backslash escapes a quote, a backslash and `n`.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                escaped @ ('"' | '\\') => value.push(escaped),
                // Unknown escapes stay as they are, as Prometheus itself keeps them.
                other => value.extend(['\\', other]),
            },
            plain => value.push(plain),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VLLM: &str = include_str!("../../../../tests/data/vllm/metrics_after_load.txt");

    #[test]
    fn a_page_of_the_real_engine_is_read_whole() {
        let page = Page::parse(VLLM);
        assert_eq!(page.value("vllm:prompt_tokens_total"), Some(7680.0));
        assert_eq!(page.value("vllm:prompt_tokens_by_source_total"), Some(7680.0));
        assert_eq!(page.label("vllm:cache_config_info", "kv_cache_size_tokens"), Some("131072"));
        assert_eq!(page.value("process_virtual_memory_bytes"), Some(2.5237504e+09));
        assert_eq!(page.value("absent"), None);
    }

    #[test]
    fn the_corners_of_the_format_are_known() {
        let page = Page::parse(
            "# HELP a:b text\na:b{path=\"C:\\\\x\",say=\"a \\\"b\\\" }, \\n\", } 3 1700000000\nother 1\na:b 4e0\n\
             n NaN\nn 2\ninf +Inf\nless -Inf\nlarge{e=\"0\"} 0.25\nlarge{e=\"1\"} 0.5\nx_count 7 # {trace_id=\"z\"} 0.5\n\
             empty{} 9\ngarbage\n{} 3\n9name 3\nname\nopen{a=\"b 3\nwords a b\ntwo 1 2 3\nlast 5",
        );
        assert_eq!(page.value("a:b"), Some(7.0));
        assert_eq!(page.label("a:b", "path"), Some("C:\\x"));
        assert_eq!(page.label("a:b", "say"), Some("a \"b\" }, \n"));
        assert_eq!(page.value("n"), Some(2.0));
        assert_eq!(page.value("inf"), Some(f64::INFINITY));
        assert_eq!(page.value("less"), Some(f64::NEG_INFINITY));
        assert_eq!(page.largest("large"), Some(0.5));
        assert_eq!(page.value("x_count"), Some(7.0));
        assert_eq!(page.value("empty"), Some(9.0));
        assert_eq!(page.value("last"), Some(5.0), "the final newline is missing");
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_fall(text in any::<String>(), line in "[a-z:]{1,3}(\\{[a-z]=\"[\\PC\\\\\"]*\"\\})? [0-9NaInf#{} ]*") {
            let page = Page::parse(&format!("{text}\n{line}"));
            let _ = page.value("a");
        }

        #[test]
        fn any_label_value_comes_back(value in any::<String>()) {
            let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            // `lines` takes a carriage return before a newline as part of the line's end; the format has none inside.
            prop_assume!(!value.contains('\r'));
            let page = Page::parse(&format!("m{{l=\"{escaped}\"}} 1"));
            prop_assert_eq!(page.label("m", "l"), Some(value.as_str()));
        }
    }

    #[test]
    fn fuzz_metrics() {
        let dynamo = include_str!("../../../../tests/data/vllm/dynamo_worker_metrics.txt");
        let lines: Vec<&str> = VLLM.lines().chain(dynamo.lines()).collect();
        let valid = lines.chunks(20).map(|lines| lines.join("\n"));
        autotune_fuzz::fuzz(15, valid, |input, _| {
            let page = Page::parse(&String::from_utf8_lossy(input));
            for dialect in super::super::dialects::DIALECTS {
                let _ = (dialect.of_metrics(&page), dialect.sample(&page));
            }
        });
    }
}
