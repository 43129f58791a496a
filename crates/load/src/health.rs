//! How well the load generator kept up. If it did not, the probe is void: its latencies are partly our own.

use serde::{Deserialize, Serialize};

use autotune_records::RequestRecord;
use autotune_records::quantiles::quantile_of_sorted;
use autotune_records::units::Seconds;

/// Lateness and CPU use of the load generator in a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientHealth {
    /// The 99th percentile of actual minus intended send.
    pub lag_p99: Seconds,
    pub lag_max: Seconds,
    /// The 99th percentile of the time from a byte's arrival to its read; `None` if the kernel gives no time stamps.
    pub backlog_p99: Option<Seconds>,
    /// CPU time of the generator's threads.
    pub cpu: Seconds,
    /// How long they were ready to run and had no core.
    pub starved: Seconds,
}

impl ClientHealth {
    /// The lateness of a probe's sends, by its records.
    pub fn of(records: &[RequestRecord]) -> Self {
        let mut lags: Vec<f64> = records.iter().map(|r| (r.sent - r.due).0).collect();
        lags.sort_by(f64::total_cmp);
        let at = |q| Seconds(quantile_of_sorted(&lags, q).unwrap_or(0.0));
        Self { lag_p99: at(0.99), lag_max: at(1.0), ..Self::default() }
    }

    /// With the lateness of its reads and what its threads used.
    pub(super) fn with(self, backlog_p99: Option<Seconds>, used: Usage) -> Self {
        Self { backlog_p99, cpu: used.cpu, starved: used.starved, ..self }
    }
}

/// What threads used since they began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Usage {
    cpu: Seconds,
    starved: Seconds,
}

impl Usage {
    /// Of these threads until now; zero where the kernel does not count.
    pub(super) fn of(thread_ids: &[i32]) -> Self {
        let mut sum = Self::default();
        for id in thread_ids {
            // Nanoseconds on a core, nanoseconds waiting for one, time slices (Documentation/scheduler/sched-stats.rst of Linux).
            let Ok(text) = std::fs::read_to_string(format!("/proc/self/task/{id}/schedstat")) else { continue };
            let mut numbers = text.split_ascii_whitespace().map(|n| n.parse::<f64>().unwrap_or(0.0) / 1e9);
            sum.cpu += Seconds(numbers.next().unwrap_or(0.0));
            sum.starved += Seconds(numbers.next().unwrap_or(0.0));
        }
        sum
    }

    /// What was used since an earlier reading.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self { cpu: self.cpu - earlier.cpu, starved: self.starved - earlier.starved }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::Lane;

    #[test]
    fn the_kernel_accounts_for_threads() {
        let lane = Lane::punctual("test").unwrap();
        let before = Usage::of(&[lane.thread_id()]);
        let (done, wait) = std::sync::mpsc::channel();
        lane.handle().spawn(async move { done.send((0..20_000_000_u64).map(std::hint::black_box).sum::<u64>()) });
        wait.recv().unwrap();
        let used = Usage::of(&[lane.thread_id()]).since(before);
        assert!(used.cpu.0 > 0.0, "{used:?}");
    }
}
