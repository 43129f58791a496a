//! Spans of time that overlap.

/// The most spans that are open at the same time, from their beginnings and ends. One that ends where another begins does not meet it.
pub fn most_at_once(spans: impl Iterator<Item = (f64, f64)>) -> u32 {
    let mut changes: Vec<(f64, i32)> = spans.flat_map(|(begins, ends)| [(begins, 1), (ends, -1)]).collect();
    changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let open = changes.into_iter().scan(0, |open, (_, change)| {
        *open += change;
        Some(*open)
    });
    open.max().map_or(0, |most| most.max(0) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_at_once_counts_overlaps() {
        let spans = [(0.0, 2.0), (1.0, 3.0), (2.0, 4.0), (9.0, f64::INFINITY)];
        assert_eq!((most_at_once(spans.into_iter()), most_at_once([].into_iter())), (2, 0));
    }
}
