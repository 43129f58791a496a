//! What happens in a session, for whoever listens.

use crate::journal::{Conclusion, Cost, Purpose};
use crate::rig::{ProbeAsk, Ready};
use crate::search::Incumbent;
use crate::verdict::Verdict;
use autotune_plan::engine::diagnosis::Diagnosis;
use autotune_plan::space::Point;
use autotune_records::units::{Rate, Seconds};
use autotune_twin::Fit;

#[derive(Clone, Debug)]
pub enum Event<'a> {
    Begun {
        /// What it is expected to cost.
        forecast: Cost,
        budget: Seconds,
    },
    /// Records of an earlier run are used.
    Resumed {
        /// What its records say was spent, and need not be paid again.
        cost: Cost,
        /// Processes of the earlier run that were still there and were ended.
        swept: usize,
    },
    Launching {
        trial: u32,
        attempt: u32,
        purpose: Purpose,
        point: &'a Point,
        /// Whether it is one that runs and takes other limits.
        alters: bool,
    },
    Ready {
        trial: u32,
        ready: &'a Ready,
        /// Parameters that it runs with another value than asked: name, asked, effective.
        mismatches: &'a [(String, autotune_plan::space::Value, autotune_plan::space::Value)],
    },
    /// It failed, at its start or under load.
    Failed {
        trial: u32,
        diagnosis: &'a Diagnosis,
        /// Whether it is tried once more.
        again: bool,
    },
    Probing {
        trial: u32,
        ask: &'a ProbeAsk,
    },
    Probed {
        trial: u32,
        ask: &'a ProbeAsk,
        verdict: &'a Verdict,
    },
    /// The twin was fitted to the probes so far.
    Fitted(&'a Fit),
    /// There is a better point, or another estimate of it. `defaults` is the rate that those are now thought to
    /// keep; `None` if none is known.
    Improved {
        best: &'a Incumbent,
        defaults: Option<Rate>,
    },
    /// A sentence about a decision.
    Note(&'a str),
    /// A sentence about the reasons of one, for those who ask for it.
    Detail(&'a str),
    /// Where the session stands, after each step.
    Standing {
        spent: Seconds,
        /// Engine time that is expected to be needed still.
        left: Seconds,
        budget: Seconds,
    },
    /// A level of load is under way; sent once a second.
    Loading {
        level: &'a str,
        elapsed: Seconds,
        length: Seconds,
        /// Requests with a whole answer.
        answered: u64,
        failed: u64,
        /// Requests that wait for the rest of their answer.
        open: u64,
    },
    Ended(&'a Conclusion),
}

/// Whoever listens. A sink changes nothing.
pub trait Sink: Send + Sync {
    fn take(&self, event: &Event<'_>);
}

pub struct Silent;

impl Sink for Silent {
    fn take(&self, _event: &Event<'_>) {}
}

/// Two that listen; the first hears each event first.
pub struct Both<A, B>(pub A, pub B);

impl<A: Sink, B: Sink> Sink for Both<A, B> {
    fn take(&self, event: &Event<'_>) {
        self.0.take(event);
        self.1.take(event);
    }
}

impl<S: Sink + ?Sized> Sink for Box<S> {
    fn take(&self, event: &Event<'_>) {
        (**self).take(event);
    }
}

impl<S: Sink + ?Sized> Sink for std::sync::Arc<S> {
    fn take(&self, event: &Event<'_>) {
        (**self).take(event);
    }
}
