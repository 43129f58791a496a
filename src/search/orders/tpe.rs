//! A tree-structured Parzen estimator: points whose values were seen among the better ones (Bergstra et al. 2011).

use rand::RngExt;

use super::parzen::Parzen;
use super::random::Draws;
use super::{Order, Past};
use crate::space::{Parameter, Point, Space};

/// The first points are random.
const RANDOM: usize = 5;
/// The share of the points so far that counts as good.
const GOOD: f64 = 0.25;
/// Points drawn from the good ones' density for each proposal.
const CANDIDATES: usize = 24;
/// Draws for one such point; where constraints forbid nearly everything, a random one is taken.
const DRAWS: usize = 64;

/// The order.
pub struct Tpe {
    draws: Draws,
    random: usize,
    left: usize,
}

/// A parameter's densities: among the good points, and among the others.
struct Densities<'a> {
    parameter: &'a Parameter,
    good: Parzen,
    rest: Parzen,
}

impl Tpe {
    /// At most `wanted` points; the seed and what is kept decide which.
    pub fn new(space: &Space, held: &Point, wanted: usize, seed: u64) -> Self {
        Self { draws: Draws::new(space, held, seed), random: RANDOM, left: wanted }
    }

    /// The best of some points drawn where good ones were; none where no point is good, or no draw is open.
    fn proposal(&mut self, past: &Past) -> Option<Point> {
        let (good, rest) = split(past)?;
        let Draws { space, held, rng } = &mut self.draws;
        let densities: Vec<Densities> = space
            .parameters
            .iter()
            .filter(|parameter| held.get(&parameter.name).is_none())
            .map(|parameter| Densities { parameter, good: window(parameter, &good), rest: window(parameter, &rest) })
            .collect();
        let mut best: Option<(f64, Point)> = None;
        let mut candidates = 0;
        for _ in 0..CANDIDATES * DRAWS {
            let mut point = held.clone();
            let mut gain = 0.0;
            for Densities { parameter, good, rest } in &densities {
                let index = good.draw(rng.random());
                gain += (good.chance(index) / rest.chance(index)).ln();
                point = point.with(&parameter.name, parameter.values[index].clone());
            }
            if !space.admits(&point) || !past.is_open(&point) {
                continue;
            }
            if best.as_ref().is_none_or(|(known, _)| gain > *known) {
                best = Some((gain, point));
            }
            candidates += 1;
            if candidates == CANDIDATES {
                break;
            }
        }
        best.map(|(_, point)| point)
    }
}

impl Order for Tpe {
    fn next(&mut self, past: &Past) -> Option<Point> {
        self.left = self.left.checked_sub(1)?;
        let proposal = if self.random > 0 { None } else { self.proposal(past) };
        self.random = self.random.saturating_sub(1);
        let point = proposal.or_else(|| self.draws.open_point(past));
        if point.is_none() {
            self.left = 0;
        }
        point
    }

    fn left(&self) -> usize {
        self.left
    }
}

/// The good points and the others. Points that failed or kept nothing are worst, and never good.
fn split(past: &Past) -> Option<(Vec<&Point>, Vec<&Point>)> {
    let worth = |(_, kept): &&(Point, Option<super::Kept>)| kept.map_or(f64::NEG_INFINITY, |kept| kept.worth);
    let mut tried: Vec<_> = past.tried.iter().collect();
    tried.sort_by(|a, b| worth(b).total_cmp(&worth(a)));
    let kept = tried.iter().filter(|(_, kept)| kept.is_some()).count();
    let good = ((tried.len() as f64 * GOOD).ceil() as usize).min(kept);
    let mut points: Vec<&Point> = tried.into_iter().map(|(point, _)| point).collect();
    let rest = points.split_off(good);
    (good > 0).then_some((points, rest))
}

/// The density of a parameter's values in some points; what lies outside of its values is left out.
fn window(parameter: &Parameter, points: &[&Point]) -> Parzen {
    let index = |point: &&Point| {
        let value = point.get(&parameter.name)?;
        parameter.values.iter().position(|v| v.same(value))
    };
    let seen: Vec<usize> = points.iter().filter_map(index).collect();
    if parameter.values.iter().all(|value| value.number().is_some()) {
        Parzen::of_numbers(parameter.values.len(), &seen)
    } else {
        Parzen::of_words(parameter.values.len(), &seen)
    }
}
