//! A timer that is exact to some tens of microseconds, where tokio's own counts whole milliseconds.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::{Duration, Instant};

use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use autotune_clock as clock;

/// The kernel's timer, as a file descriptor that becomes readable.
struct Timer(TimerFd);

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// An alarm of the runtime it was made in.
pub(super) struct Alarm(AsyncFd<Timer>);

impl Alarm {
    pub(super) fn new() -> io::Result<Self> {
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe for types that may give their descriptor away; ours owns it and does not"
        )]
        let registered = AsyncFd::with_interest(Timer(timer), Interest::READABLE)?;
        Ok(Self(registered))
    }

    /// Returns at that time or just after it. Returns at once if the time has passed or the timer fails. Cancel safe.
    pub(super) async fn at(&self, at: Instant) {
        loop {
            let left = at.saturating_duration_since(clock::now());
            // The kernel takes zero as "never".
            if left < Duration::from_micros(1) {
                return;
            }
            if self.0.get_ref().0.set(Expiration::OneShot(left.into()), TimerSetTimeFlags::empty()).is_err() {
                return;
            }
            match self.0.readable().await {
                Ok(mut ready) => {
                    // The event is only a wake-up: the loop compares the clock again.
                    let _ = self.0.get_ref().0.wait();
                    ready.clear_ready();
                }
                Err(_) => return,
            }
        }
    }
}
