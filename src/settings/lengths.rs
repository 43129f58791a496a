//! Token counts: an integer, or a distribution with its bounds.

use toml::Spanned;
use toml::de::DeValue;

use super::format::{Kind, LENGTHS};
use super::plan::{LengthShape, Lengths};
use super::problems::Problem;
use super::reader::{self, Place};

/// Reads an integer or a table with `distribution`.
pub fn read(path: &str, value: &Spanned<DeValue>, problems: &mut Vec<Problem>) -> Option<Lengths> {
    let DeValue::Table(table) = value.get_ref() else { return fixed(path, value, problems) };
    let place = Place { path, span: value.span() };
    let fields = reader::fields(&LENGTHS, &place, table, problems);
    let (min, max): (Option<u32>, Option<u32>) = (fields.integer("min"), fields.integer("max"));
    if let (Some(min), Some(max)) = (min, max)
        && min > max
    {
        let span = fields.span("min").or_else(|| fields.span("max")).unwrap_or_else(|| value.span());
        let message = format!("`{path}` has its `min` above its `max`");
        problems.push(Problem::new(&span, message, format!("{min} is above {max}"), "swap `min` and `max`"));
        return None;
    }
    let shape = match fields.word::<String>("distribution")?.as_str() {
        "normal" => LengthShape::Normal { mean: fields.real("mean")?, sd: fields.real("sd")? },
        "lognormal" => LengthShape::Lognormal { median: fields.real("median")?, sigma: fields.real("sigma")? },
        _ => LengthShape::Uniform,
    };
    Some(Lengths { shape, min: min?, max: max? })
}

fn fixed(path: &str, value: &Spanned<DeValue>, problems: &mut Vec<Problem>) -> Option<Lengths> {
    let count = value.get_ref().as_integer().and_then(|i| u32::from_str_radix(i.as_str(), i.radix()).ok());
    let count = count.filter(|count| *count >= 1);
    if count.is_none() {
        let hint = format!("write {}", Kind::Lengths.expects());
        problems.push(Problem::new(&value.span(), format!("`{path}` is out of range"), "out of range", hint));
    }
    count.map(|count| Lengths { shape: LengthShape::Fixed, min: count, max: count })
}
