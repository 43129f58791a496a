//! A client without a core says so: its probe is void, not slow.

use std::process::{Child, Command, Stdio};

use autotune::load::ClientHealth;
use autotune::settings::limits;
use autotune::units::Seconds;
use autotune::verdict::{Certainty, Course, Outcome, Verdict, Window, judge};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::known::Known;
use crate::traffic::{Traffic, driven};

/// Processes that want the same core all the time; they end with the test.
struct Busy(Vec<Child>);

impl Busy {
    fn start(count: usize) -> Self {
        let spin = |_| Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().unwrap();
        Self((0..count).map(spin).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

fn probe() -> (Verdict, ClientHealth) {
    let server = Known::start(1).unwrap();
    let driven = driven(&server.url(), "known?ttft=20&itl=10", Traffic::at_rate(100.0, 300, 20));
    let window = Window { from: Seconds(0.0), to: Seconds(3.0) };
    let course = Course { window, ended: driven.ended, complete: true, steady: true };
    let limits = limits("ttft_p99=60ms,tpot_p99=15ms").unwrap();
    let verdict = judge(&driven.records, &limits, course, &driven.health, Certainty(0.5));
    (verdict, driven.health)
}

#[test]
fn a_client_that_shares_its_core_with_others_is_void_and_not_slow() {
    // On a thread of its own, from which the client's and the server's threads and the busy processes inherit their only core.
    let pinned = std::thread::spawn(|| {
        let all = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let first = (0..CpuSet::count()).find(|core| all.is_set(*core).unwrap()).unwrap();
        let mut one = CpuSet::new();
        one.set(first).unwrap();
        sched_setaffinity(Pid::from_raw(0), &one).unwrap();
        let _busy = Busy::start(24);
        probe()
    });
    let (verdict, health) = pinned.join().unwrap();
    assert_eq!(verdict.outcome, Outcome::Void, "{health:?}: {}", verdict.because);
    assert!(health.starved.0 > 0.1, "the kernel's account shows it too: {health:?}");
    assert!(verdict.because.contains("for a core"), "{}", verdict.because);
}
