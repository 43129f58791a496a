//! (c) What each parameter did: the rates that held along each of them, and over pairs of them where enough was tried.

use super::chart::{Axis, Chart, number};
use super::{CIRCLE, DIAMOND, DOWN, UP, figure, legend, missing, shape};
use crate::report::data::{Bracket, ReportData, Trial, Whose};
use crate::space::{Parameter, Value};
use crate::units::Rate;

/// A map of a pair has at least so many places that were tried.
const ENOUGH: usize = 4;
/// At most so many maps.
const MAPS: usize = 3;

/// A point with what is known of its limit.
struct Tried<'d, 'a> {
    trial: &'d Trial<'a>,
    bracket: Bracket,
    /// The limit by certification with its 90 % interval, which replaces what the search saw.
    limit: Option<(Rate, Rate, Rate)>,
}

impl Tried<'_, '_> {
    /// The highest rate that is known to be within the limit, or the limit itself.
    fn rate(&self) -> Option<Rate> {
        self.limit.map(|(limit, ..)| limit).or(self.bracket.kept)
    }

    /// Between which rates its limit lies; `None` if neither is known.
    fn interval(&self) -> Option<(f64, f64)> {
        let (kept, broken) = (self.bracket.kept, self.bracket.broken);
        let ends = || (kept.map_or(0.0, |rate| rate.0), broken.map_or(f64::INFINITY, |rate| rate.0));
        let bracket = || (kept.is_some() || broken.is_some()).then(ends);
        self.limit.map(|(_, low, high)| (low.0, high.0)).or_else(bracket)
    }
}

pub(super) fn section(data: &ReportData<'_>) -> String {
    let Some(header) = data.header else { return missing("The journal has no header.") };
    let limit = |trial: &Trial<'_>| {
        let answer = match trial.whose {
            Whose::Defaults => data.outcome.baseline.as_ref(),
            Whose::Tuned => data.outcome.best.as_ref(),
            Whose::Other => None,
        }?;
        answer.limit_interval()
    };
    let tried = data.brackets().into_iter().map(|(trial, bracket)| Tried { trial, bracket, limit: limit(trial) });
    let tried: Vec<Tried<'_, '_>> = tried.collect();
    let parameters = &header.plan.space.parameters;
    if tried.len() < 2 {
        return missing("Fewer than two points were probed at a rate, so nothing can be said of a parameter.");
    }
    let says = format!(
        "{} points were probed at a rate. A point is one value for each parameter. A certified point shows its limit with the 90 % interval. \
         Any other shows the highest rate that held and the lowest that did not: its limit lies between. Points differ in their other parameters too.",
        tried.len()
    );
    let charts: String = parameters.iter().map(|parameter| along(parameter, &tried)).collect();
    let maps = maps(parameters, &tried);
    let key = legend(
        &[
            ("defaults full", CIRCLE, "defaults"),
            ("tuned full", DIAMOND, "tuned"),
            ("other full", CIRCLE, "other candidate, held"),
            ("other hollow", DOWN, "did not hold"),
            ("other full", UP, "held, nothing higher was tried"),
        ],
        &charts,
    );
    format!("{}{key}<div class=\"figures\">{charts}{maps}</div>", super::paragraph(&says))
}

fn place(parameter: &Parameter, trial: &Trial<'_>) -> Option<usize> {
    let value = trial.point.get(&parameter.name)?;
    parameter.values.iter().position(|v| v.same(value))
}

/// The values of the space, and those that the engine chose itself.
fn with_own(parameter: &Parameter, tried: &[Tried<'_, '_>]) -> Parameter {
    let mut all = parameter.clone();
    for value in tried.iter().filter_map(|t| t.trial.point.get(&parameter.name)) {
        if !all.values.iter().any(|v| v.same(value)) {
            all.values.push(value.clone());
        }
    }
    // Words have no order.
    if all.values.iter().all(|v| v.number().is_some()) {
        all.values.sort_by(|a, b| a.number().unwrap_or(0.0).total_cmp(&b.number().unwrap_or(0.0)));
    }
    all
}

fn along(parameter: &Parameter, tried: &[Tried<'_, '_>]) -> String {
    let parameter = &with_own(parameter, tried);
    let names: Vec<String> = parameter.values.iter().map(Value::to_string).collect();
    let rates = tried.iter().flat_map(|t| match t.limit {
        Some((_, low, high)) => [Some(low), Some(high)],
        None => [t.bracket.kept, t.bracket.broken],
    });
    let y = Axis::over("requests per second", rates.flatten().map(|rate| rate.0));
    let mut chart =
        Chart::new(&format!("Limits over {}", parameter.name), Axis::words(&parameter.name, &short(&names)), y, 300.0);
    // Of each value, the best rate, and how many points had it.
    let mut seen: Vec<(Option<Rate>, usize)> = vec![(None, 0); names.len()];
    let mut untold = 0;
    // The answer is drawn above the others.
    let mut order: Vec<&Tried<'_, '_>> = tried.iter().collect();
    order.sort_by_key(|t| t.trial.whose);
    for t in order {
        let known = place(parameter, t.trial).and_then(|place| Some((place, seen.get_mut(place)?)));
        let Some((place, (best, count))) = known else {
            untold += 1;
            continue;
        };
        // Points with the same value stand side by side.
        let aside = [0.0, 9.0, -9.0, 18.0, -18.0][*count % 5];
        *count += 1;
        if t.rate() > *best {
            *best = t.rate();
        }
        draw(&mut chart, place as f64, aside, t);
    }
    let values = seen.iter().filter(|(_, count)| *count > 0).count();
    let untold = if untold == 0 { String::new() } else { format!(" {untold} points do not tell their value.") };
    let best = seen.iter().zip(&names).filter_map(|((rate, _), name)| Some(format!("{name}: {}", (*rate)?)));
    let best: Vec<String> = best.collect();
    let alike = alike(parameter, tried);
    let best = if best.is_empty() { "No rate held.".to_owned() } else { format!("Best at each: {}.", best.join(", ")) };
    figure(&parameter.name, &chart.svg(), &format!("{values} of {} values tried. {best}{alike}{untold}", names.len()))
}

/// Values whose best points may have the same limit: by intervals that overlap.
fn alike(parameter: &Parameter, tried: &[Tried<'_, '_>]) -> String {
    let of = |value: usize| {
        let there = tried.iter().filter(|t| place(parameter, t.trial) == Some(value));
        there.filter_map(Tried::interval).max_by(|a, b| a.0.total_cmp(&b.0))
    };
    let known: Vec<(usize, (f64, f64))> = (0..parameter.values.len()).filter_map(|v| Some((v, of(v)?))).collect();
    // Runs of neighbours that all hold one rate in common.
    let mut runs: Vec<(usize, usize, (f64, f64))> = Vec::new();
    for (value, (low, high)) in known {
        match runs.last_mut() {
            Some((_, last, common)) if low.max(common.0) <= high.min(common.1) => {
                (*last, *common) = (value, (low.max(common.0), high.min(common.1)));
            }
            _ => runs.push((value, value, (low, high))),
        }
    }
    let said = runs.into_iter().filter(|(first, last, _)| first < last);
    said.map(|(first, last, _)| {
        format!(" {} to {}: no difference is known.", parameter.values[first], parameter.values[last])
    })
    .collect()
}

fn draw(chart: &mut Chart, x: f64, aside: f64, t: &Tried<'_, '_>) {
    let (trial, class) = (t.trial, t.trial.whose.name());
    if let Some((limit, low, high)) = t.limit {
        chart.error_bar(x, aside, (low.0, high.0), class);
        let says = format!("{class}: limit {limit}, 90 %: {low} to {high}, with {}", trial.point);
        chart.mark((x, limit.0), aside, shape(trial.whose), &format!("{class} full"), &says);
        return;
    }
    if let (Some(kept), Some(broken)) = (t.bracket.kept, t.bracket.broken) {
        chart.error_bar(x, aside, (kept.0, broken.0), class);
    }
    if let Some(broken) = t.bracket.broken {
        let says = format!("trial {}: {broken} did not hold with {}", trial.number, trial.point);
        chart.mark((x, broken.0), aside, DOWN, &format!("{class} hollow"), &says);
    }
    if let Some(kept) = t.bracket.kept {
        let shape = if t.bracket.broken.is_none() { UP } else { shape(trial.whose) };
        let says = format!("trial {}: {kept} held with {}", trial.number, trial.point);
        chart.mark((x, kept.0), aside, shape, &format!("{class} full"), &says);
    }
}

/// Long words are cut where they would run into each other.
fn short(names: &[String]) -> Vec<String> {
    let room = (68 / names.len().max(1)).max(3);
    let cut = |name: &String| match name.chars().count() > room {
        true => name.chars().take(room - 1).chain(['…']).collect(),
        false => name.clone(),
    };
    names.iter().map(cut).collect()
}

fn maps(parameters: &[Parameter], tried: &[Tried<'_, '_>]) -> String {
    let mut maps: Vec<(usize, String)> = Vec::new();
    for (i, one) in parameters.iter().enumerate() {
        for other in &parameters[i + 1..] {
            maps.extend(map(&with_own(one, tried), &with_own(other, tried), tried));
        }
    }
    maps.sort_by_key(|(places, _)| std::cmp::Reverse(*places));
    maps.into_iter().take(MAPS).map(|(_, map)| map).collect()
}

/// The best rate that held at each pair of values; `None` if too few were tried.
fn map(across: &Parameter, up: &Parameter, tried: &[Tried<'_, '_>]) -> Option<(usize, String)> {
    let mut cells: std::collections::BTreeMap<(usize, usize), (Option<Rate>, Whose)> =
        std::collections::BTreeMap::new();
    for t in tried {
        let (Some(x), Some(y)) = (place(across, t.trial), place(up, t.trial)) else { continue };
        let cell = cells.entry((x, y)).or_insert((None, Whose::Other));
        if t.rate() > cell.0 {
            cell.0 = t.rate();
        }
        cell.1 = cell.1.max(t.trial.whose);
    }
    let kept = cells.values().filter_map(|(rate, _)| *rate).map(|rate| rate.0);
    let (low, high) = kept.fold((f64::INFINITY, 0.0), |(l, h), v| (f64::min(l, v), f64::max(h, v)));
    let several =
        |of: fn(&(usize, usize)) -> usize| cells.keys().map(of).collect::<std::collections::BTreeSet<_>>().len() > 1;
    if cells.len() < ENOUGH || high <= 0.0 || !several(|c| c.0) || !several(|c| c.1) {
        return None;
    }
    let names = |p: &Parameter| short(&p.values.iter().map(Value::to_string).collect::<Vec<_>>());
    let (x, y) = (Axis::words(&across.name, &names(across)), Axis::words(&up.name, &names(up)));
    let mut chart = Chart::new(
        &format!("Best rate over {} and {}", across.name, up.name),
        x,
        y,
        90.0 + 34.0 * up.values.len() as f64,
    );
    for ((x, y), (rate, whose)) in &cells {
        let (x, y) = (*x as f64, *y as f64);
        let (class, text) = match rate {
            // Five shades, the darkest for the highest rate.
            Some(rate) => (1 + ((rate.0 - low) / (high - low).max(1e-12) * 4.0).round() as usize, number(rate.0)),
            None => (0, "none".to_owned()),
        };
        let mark = if *whose == Whose::Other { "" } else { "*" };
        chart.area((x - 0.48, y - 0.47), (x + 0.48, y + 0.47), &format!("heat{class}"), "");
        chart.text((x, y), &format!("{text}{mark}"), &format!("on{class}"));
    }
    let title = format!("{} and {}", across.name, up.name);
    let says = "The best limit, or rate that held, at each pair, in requests per second. * holds the defaults or the tuned point. Empty pairs were not tried.";
    Some((cells.len(), figure(&title, &chart.svg(), says)))
}
