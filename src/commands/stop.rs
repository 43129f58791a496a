//! Being asked to stop: SIGINT from a person, SIGTERM from a cluster, SIGHUP from a terminal that went away.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// How long whoever was asked may compute on before it is ended all the same.
pub(super) const UNHEARD: Duration = Duration::from_secs(5);

/// What it takes to hear one, where nothing is computed.
const MOMENT: Duration = Duration::from_millis(100);

/// Hears the signals, however often. They are counted on a thread of the runtime, whatever the others compute. Clones hear the same ones, and
/// what one of them has heard is heard.
#[derive(Clone)]
pub(super) struct Stop {
    told: watch::Receiver<u32>,
    heard: Arc<AtomicU32>,
}

impl Stop {
    /// Begins to listen; from now on the signals end nothing by themselves.
    pub(super) fn listen() -> std::io::Result<Self> {
        let (mut interrupts, mut terminations) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        // Whoever starts us under nohup wants it to be ignored.
        let mut hangups = if ignores_hangups() { None } else { Some(signal(SignalKind::hangup())?) };
        let (tell, told) = watch::channel(0);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = interrupts.recv() => {}
                    _ = terminations.recv() => {}
                    Some(_) = async { hangups.as_mut()?.recv().await } => {}
                }
                tell.send_modify(|count| *count += 1);
            }
        });
        Ok(Self::of(told))
    }

    fn of(told: watch::Receiver<u32>) -> Self {
        Self { told, heard: Arc::default() }
    }

    /// Waits for the next one.
    pub(super) async fn told(&mut self) {
        let heard = self.heard.load(Ordering::SeqCst);
        if self.told.wait_for(|count| *count > heard).await.is_err() {
            return std::future::pending().await;
        }
        self.heard.store(heard + 1, Ordering::SeqCst);
    }

    /// Waits for a signal that nobody hears for as long as `patience`, or until the next one: whoever listens computes and does not look.
    pub(super) async fn unheard(mut self, patience: Duration) {
        for number in 1.. {
            if self.told.wait_for(|count| *count >= number).await.is_err() {
                return std::future::pending().await;
            }
            let again = self.told.wait_for(|count| *count > number);
            drop(tokio::time::timeout(patience, again).await);
            // Whoever is just about to hear gets its moment.
            tokio::time::sleep(MOMENT).await;
            if self.heard.load(Ordering::SeqCst) < number {
                return;
            }
        }
    }
}

/// Whether SIGHUP was ignored when we were started; the first bit of the mask is the first signal.
fn ignores_hangups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_signal_that_is_heard_is_no_reason_to_end_anything() {
        let (tell, told) = watch::channel(0);
        let mut stop = Stop::of(told);
        for _ in 0..3 {
            tell.send_modify(|count| *count += 1);
            stop.told().await;
        }
        let unheard = stop.clone().unheard(Duration::from_millis(1));
        assert!(tokio::time::timeout(Duration::from_millis(100), unheard).await.is_err());
    }

    #[test]
    fn a_computation_that_does_not_end_is_ended_by_the_signal() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let (tell, told) = watch::channel(0);
            let (ended, end) = std::sync::mpsc::channel();
            let stop = Stop::of(told);
            tokio::spawn(async move {
                stop.unheard(Duration::from_secs(3600)).await;
                ended.send(()).unwrap();
            });
            // Twice: nobody waits out any patience.
            tell.send_modify(|count| *count += 2);
            // This thread does not yield, as a computation does not.
            end.recv_timeout(Duration::from_secs(60)).unwrap();
        });
    }
}
