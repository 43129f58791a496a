//! For tests: numbers that repeat, from a plain multiplicative generator (Knuth's MMIX constants); their quality does not matter.

/// Numbers between 0 and 1, without both ends.
pub fn uniform(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as f64 + 0.5) / f64::from(1_u32 << 31)
    }
}
