//! The order of windows: A B, then B A, so that whatever drifts favours neither side.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// From 0.
    pub(super) sweep: u32,
    /// By its place among the levels.
    pub(super) level: usize,
    /// 0 is A, 1 is B.
    pub(super) side: usize,
}

/// Every level on one or two sides in each sweep. Where both run (`by_level`), sides take turns at each level. Otherwise a side has all its levels
/// of a sweep in a row, and the next sweep begins with it.
pub(super) fn order(first: usize, sides: usize, sweeps: u32, levels: usize, by_level: bool) -> Vec<Step> {
    let mut steps = Vec::new();
    for sweep in 0..sweeps {
        let turned = |turns: usize| (0..sides).map(move |side| (side + first + turns) % sides);
        if by_level {
            for level in 0..levels {
                steps.extend(turned(sweep as usize + level).map(|side| Step { sweep, level, side }));
            }
        } else {
            for side in turned(sweep as usize) {
                steps.extend((0..levels).map(|level| Step { sweep, level, side }));
            }
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_is_as_often_first() {
        let sides = |steps: &[Step]| steps.iter().map(|s| ["A", "B"][s.side]).collect::<String>();
        assert_eq!(sides(&order(0, 2, 4, 1, true)), "ABBAABBA");
        assert_eq!(sides(&order(0, 2, 2, 2, true)), "ABBABAAB");
        assert_eq!(sides(&order(1, 2, 2, 2, false)), "BBAAAABB");
        assert_eq!(sides(&order(0, 1, 2, 2, false)), "AAAA");
        let steps = order(0, 2, 3, 4, true);
        for sweep in 0..3 {
            for level in 0..4 {
                let there = steps.iter().filter(|s| (s.sweep, s.level) == (sweep, level));
                assert_eq!(there.map(|s| s.side).sum::<usize>(), 1);
            }
        }
    }
}
