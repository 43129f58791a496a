//! A histogram of the time from a byte's arrival to its read, cheap enough for many streams.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use autotune_records::units::Seconds;

/// Buckets per doubling: a quantile is known to a fifth.
const PER_DOUBLING: f64 = 4.0;
/// From a microsecond to a little over a minute.
const BUCKETS: usize = 108;

/// The histogram, by the logarithm of microseconds.
pub(super) struct Lateness([AtomicU64; BUCKETS]);

impl Default for Lateness {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Lateness {
    /// Adds one read; one of unknown lateness is left out.
    pub(super) fn note(&self, late: Option<Duration>) {
        let Some(late) = late else { return };
        let bucket = (PER_DOUBLING * (late.as_secs_f64() * 1e6).max(1.0).log2()) as usize;
        self.0[bucket.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> Vec<u64> {
        self.0.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect()
    }
}

/// The quantile of what was counted between two readings, as the upper end of its bucket; `None` if nothing was.
pub(super) fn quantile(before: &[u64], after: &[u64], q: f64) -> Option<Seconds> {
    let counts: Vec<u64> = before.iter().zip(after).map(|(before, after)| after - before).collect();
    let rank = (q * counts.iter().sum::<u64>() as f64).ceil().max(1.0) as u64;
    let mut seen = 0;
    let bucket = counts.iter().position(|count| {
        seen += count;
        seen >= rank
    })?;
    Some(Seconds(((bucket + 1) as f64 / PER_DOUBLING).exp2() / 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_known_to_a_fifth() {
        let lateness = Lateness::default();
        let before = lateness.counts();
        for micros in 1..=1000 {
            lateness.note(Some(Duration::from_micros(micros)));
        }
        lateness.note(None);
        let after = lateness.counts();
        for q in [0.5, 0.99, 1.0] {
            let found = quantile(&before, &after, q).unwrap().0 / (q * 1e-3);
            assert!((1.0..1.2).contains(&found), "{q}: {found}");
        }
        assert_eq!(quantile(&after, &after, 0.5), None);
    }
}
