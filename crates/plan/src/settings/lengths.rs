//! Token counts: an integer, or a distribution with its bounds.

use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::DeValue;

use super::format::{Key, Kind, Table, Variant};
use super::reader::{self, Fields, Place};
use crate::problems::Problem;
use autotune_records::units::MOST_TOKENS;

/// A distribution of token counts. Draws are rounded and held within `min` and `max`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lengths {
    pub shape: LengthShape,
    /// The smallest count, at least 1.
    pub min: u32,
    pub max: u32,
}

/// The shape of a distribution of token counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LengthShape {
    /// Always `min` (which equals `max`).
    Fixed,
    /// Uniform between `min` and `max`.
    Uniform,
    Normal {
        mean: f64,
        sd: f64,
    },
    Lognormal {
        median: f64,
        /// Standard deviation of the logarithm.
        sigma: f64,
    },
    /// Bins, uniform inside; `min` is the first edge and `max` the last.
    Histogram {
        /// Where bins begin, ascending, and where the last one ends, itself included.
        edges: Vec<u32>,
        /// The weight of each bin.
        counts: Vec<u32>,
    },
}

/// The table of a distribution of token counts.
#[rustfmt::skip]
pub static LENGTHS: Table = Table {
    variant: Variant::Word("distribution"),
    rows: &[&[
        Key::required(Kind::Word(&["uniform", "normal", "lognormal", "histogram"])).named("distribution", "The shape of the distribution."),
        Key::required(Kind::Positive).named("mean", "Mean in tokens.").within(&["normal"]),
        Key::required(Kind::Positive).named("sd", "Standard deviation in tokens.").within(&["normal"]),
        Key::required(Kind::Positive).named("median", "Median in tokens.").within(&["lognormal"]),
        Key::required(Kind::Positive).named("sigma", "Standard deviation of the logarithm.").within(&["lognormal"]),
        Key::required(Kind::Integers { min: 1, max: MOST_TOKENS as i64 }).named("edges", "Where bins begin, ascending, and where the last one ends, itself included.").within(&["histogram"]),
        Key::required(Kind::Integers { min: 0, max: u32::MAX as i64 }).named("counts", "The weight of each bin: one number fewer than `edges`.").within(&["histogram"]),
        Key::default(Kind::Integer { min: 1, max: MOST_TOKENS as i64 }, "1").named("min", "The smallest count; smaller draws are raised to it.").within(&["uniform", "normal", "lognormal"]),
        Key::required(Kind::Integer { min: 1, max: MOST_TOKENS as i64 }).named("max", "The largest count; larger draws are lowered to it.").within(&["uniform", "normal", "lognormal"]),
    ]],
};

/// Reads an integer or a table with `distribution`.
pub fn read(path: &str, value: &Spanned<DeValue>, problems: &mut Vec<Problem>) -> Option<Lengths> {
    let DeValue::Table(table) = value.get_ref() else { return fixed(path, value, problems) };
    let place = Place { path, span: value.span() };
    let fields = reader::fields(&LENGTHS, &place, table, problems);
    let (min, max): (Option<u32>, Option<u32>) = (fields.get("min"), fields.get("max"));
    if let (Some(min), Some(max)) = (min, max)
        && min > max
    {
        let span = fields.span("min").or_else(|| fields.span("max")).unwrap_or_else(|| value.span());
        let message = format!("`{path}` has its `min` above its `max`");
        problems.push(Problem::new(&span, message, format!("{min} is above {max}"), "swap `min` and `max`"));
        return None;
    }
    let shape = match fields.word::<String>("distribution")?.as_str() {
        "histogram" => return histogram(path, &fields, value, problems),
        "normal" => LengthShape::Normal { mean: fields.get("mean")?, sd: fields.get("sd")? },
        "lognormal" => LengthShape::Lognormal { median: fields.get("median")?, sigma: fields.get("sigma")? },
        _ => LengthShape::Uniform,
    };
    Some(Lengths { shape, min: min?, max: max? })
}

fn histogram(path: &str, fields: &Fields, value: &Spanned<DeValue>, problems: &mut Vec<Problem>) -> Option<Lengths> {
    let (edges, counts) = (fields.integers::<u32>("edges")?, fields.integers::<u32>("counts")?);
    let place = |key: &str| fields.span(key).unwrap_or_else(|| value.span());
    if let Some([_, (_, span)]) = edges.array_windows().find(|[(low, _), (high, _)]| low >= high) {
        let message = format!("`{path}.edges` does not ascend");
        problems.push(Problem::new(span, message, "not above the edge before it", "write each edge once, in order"));
        return None;
    }
    if edges.len() < 2 || counts.len() + 1 != edges.len() {
        let message = format!("`{path}` has {} edges and {} counts", edges.len(), counts.len());
        let hint = "write two edges or more, and one count for each pair of neighbours";
        problems.push(Problem::new(&place("counts"), message, "one count fewer than edges", hint));
        return None;
    }
    if counts.iter().all(|(count, _)| *count == 0) {
        let message = format!("`{path}.counts` are all zero");
        problems.push(Problem::new(&place("counts"), message, "no weight", "give one bin a count above 0"));
        return None;
    }
    let (edges, counts): (Vec<u32>, Vec<u32>) =
        (edges.into_iter().map(|(e, _)| e).collect(), counts.into_iter().map(|(c, _)| c).collect());
    let (min, max) = (*edges.first()?, *edges.last()?);
    Some(Lengths { shape: LengthShape::Histogram { edges, counts }, min, max })
}

fn fixed(path: &str, value: &Spanned<DeValue>, problems: &mut Vec<Problem>) -> Option<Lengths> {
    let count = value.get_ref().as_integer().and_then(|i| u32::from_str_radix(i.as_str(), i.radix()).ok());
    let count = count.filter(|count| (1..=MOST_TOKENS).contains(count));
    if count.is_none() {
        let hint = format!("write {}", Kind::Lengths.expects());
        problems.push(Problem::new(&value.span(), format!("`{path}` is out of range"), "out of range", hint));
    }
    count.map(|count| Lengths { shape: LengthShape::Fixed, min: count, max: count })
}
