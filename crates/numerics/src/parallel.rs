//! The same work on many items, on every core.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What `work` makes of each item, in the order of the items; `done` hears how many are finished.
pub fn map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync, done: impl Fn(usize) + Sync) -> Vec<R> {
    let (next, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let results: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::with_capacity(items.len()));
    let worker = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { break };
            let result = work(item);
            // A worker that panics ends the whole scope, so a poisoned lock is never read.
            if let Ok(mut results) = results.lock() {
                results.push((at, result));
            }
            done(finished.fetch_add(1, Ordering::Relaxed) + 1);
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores.min(items.len()) {
            scope.spawn(worker);
        }
    });
    let mut results = results.into_inner().unwrap_or_default();
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Two pieces of work at the same time.
pub fn join<A: Send, B>(first: impl FnOnce() -> A + Send, second: impl FnOnce() -> B) -> (A, B) {
    std::thread::scope(|scope| {
        let first = scope.spawn(first);
        let second = second();
        (first.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), second)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items_and_each_is_told_once() {
        let told = AtomicUsize::new(0);
        let items: Vec<u64> = (0..100).collect();
        let squares = map(
            &items,
            |i| i * i,
            |_| {
                told.fetch_add(1, Ordering::Relaxed);
            },
        );
        assert_eq!(squares, items.iter().map(|i| i * i).collect::<Vec<_>>());
        assert_eq!(told.into_inner(), 100);
        assert!(map(&[] as &[u64], |i| *i, |_| ()).is_empty());
        assert_eq!(join(|| 1, || "two"), (1, "two"));
    }
}
