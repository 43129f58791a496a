//! What failures teach: which points need not be launched any more.

use std::cmp::Ordering;

use autotune_plan::engine::Quantity;
use autotune_plan::engine::diagnosis::Consequence;
use autotune_plan::space::Point;

#[derive(Clone, Debug, Default)]
pub struct Infeasible {
    out_of_memory: Vec<Point>,
    needs_memory: Vec<Point>,
    refused: Vec<(String, autotune_plan::space::Value)>,
    points: Vec<Point>,
}

impl Infeasible {
    pub fn learn(&mut self, point: &Point, consequence: &Consequence) {
        match consequence {
            Consequence::MemoryBound => self.out_of_memory.push(point.clone()),
            Consequence::NeedsMoreMemory => self.needs_memory.push(point.clone()),
            Consequence::ValueRefused { flag: Some(flag) } if let Some(value) = point.get(flag) => {
                self.refused.push((flag.clone(), value.clone()));
            }
            // A failure that was retried and came back is no evidence on other points, but this one is not worth a third start.
            Consequence::ValueRefused { .. } | Consequence::PointOnly | Consequence::Retry | Consequence::Abort => {
                self.points.push(point.clone());
            }
        }
    }

    pub fn rules_out(&self, point: &Point) -> bool {
        self.points.contains(point)
            || self.refused.iter().any(|(name, value)| point.has(name, value))
            || self.out_of_memory.iter().any(|failed| asks_for_at_least(point, failed, Ordering::Greater))
            // It leaves no more to the KV cache.
            || self.needs_memory.iter().any(|failed| asks_for_at_least(point, failed, Ordering::Less))
    }
}

/// Whether `point` asks for at least as much of everything that costs memory as `failed`, all else equal. Its share of the memory is the same, or
/// differs in that order.
fn asks_for_at_least(point: &Point, failed: &Point, share: Ordering) -> bool {
    failed.0.iter().all(|(name, theirs)| {
        let may_be = match Quantity::of(name) {
            Some(Quantity::MemoryShare) => share,
            Some(_) => Ordering::Greater,
            None => Ordering::Equal,
        };
        let order = point.get(name).and_then(|ours| ours.compare(theirs));
        order.is_some_and(|order| order == Ordering::Equal || order == may_be)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use autotune_plan::space::Value;

    fn point(memory: f64, seqs: i64) -> Point {
        Point::default().with("gpu-memory-utilization", Value::Real(memory)).with("max-num-seqs", Value::Int(seqs))
    }

    #[test]
    fn out_of_memory_rules_out_what_asks_for_at_least_as_much() {
        let mut known = Infeasible::default();
        known.learn(&point(0.95, 256), &Consequence::MemoryBound);
        assert!(known.rules_out(&point(0.95, 256)) && known.rules_out(&point(0.97, 512)));
        assert!(!known.rules_out(&point(0.95, 128)) && !known.rules_out(&point(0.93, 512)));
    }

    #[test]
    fn a_cache_too_small_rules_out_what_leaves_it_less() {
        let mut known = Infeasible::default();
        known.learn(&point(0.8, 256), &Consequence::NeedsMoreMemory);
        assert!(known.rules_out(&point(0.7, 256)) && known.rules_out(&point(0.8, 512)));
        assert!(!known.rules_out(&point(0.85, 256)) && !known.rules_out(&point(0.8, 128)));
    }
}
