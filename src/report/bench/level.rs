//! What one level of load was, as the load generator hands it over.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::load::ClientHealth;
use crate::load::RequestRecord;
use crate::rig::{CacheUse, Telemetry};
use crate::settings::{Endpoint, Limit};
use crate::units::{Rate, Seconds};
use crate::verdict::{Course, Verdict, Window};

/// One level of load and everything that was seen of it.
#[derive(Clone, Debug)]
pub struct Level {
    /// What was asked of the load generator.
    pub offered: Offered,
    /// The part whose arrivals count, as planned; for [`Offered::AllAtOnce`] it reaches from the send to the last answer.
    pub window: Window,
    /// Every request, those of the ramp included.
    pub records: Vec<RequestRecord>,
    /// When the last answer came or the level was cut, from the start of its traffic.
    pub ended: Seconds,
    pub partial: bool,
    /// The verdict on the limits, where there are limits.
    pub verdict: Option<Verdict>,
    /// The promises; empty without `--slo`.
    pub limits: Vec<Limit>,
    /// What the server's counters showed.
    pub telemetry: Telemetry,
    pub client: ClientHealth,
    /// What the prefix cache did.
    pub cache: CacheUse,
    /// Whether every answer was to have exactly the length that was asked for.
    pub exact: bool,
    /// What a reader must know, in sentences.
    pub warnings: Vec<String>,
    /// Whom the load was for.
    pub meta: Meta,
}

impl Level {
    /// The window that traffic filled: up to its end where the level was interrupted or decided early, otherwise as planned.
    pub fn filled_window(&self) -> Window {
        let cut_short = self.partial || self.verdict.as_ref().is_some_and(|verdict| !verdict.complete);
        let Window { from, to } = self.window;
        let to = if cut_short { Seconds(to.0.min(self.ended.0).max(from.0)) } else { to };
        Window { from, to }
    }

    /// How it went, its window filled to its end. Only arrivals at a rate are steady: a recording may grow busier, users wait for each
    /// other's answers, and a burst is a backlog.
    pub fn course(&self, window: Window) -> Course {
        let steady = matches!(self.offered, Offered::Rate(_)) && self.meta.max_concurrency.is_none();
        Course { window, ended: self.ended, complete: true, steady }
    }
}

/// The load that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Offered {
    /// Arrivals at a rate, whatever the answers do.
    Rate(Rate),
    /// A closed loop: so many users, each of whom waits for an answer before asking again.
    Users(u32),
    /// So many requests at one time.
    AllAtOnce(u32),
    /// Arrivals at the times of a recording.
    Recorded,
}

impl Offered {
    /// The size of the load, by which levels of one kind are ordered; a recording has none.
    pub fn size(self) -> Option<f64> {
        match self {
            Self::Rate(rate) => Some(rate.0),
            Self::Users(n) | Self::AllAtOnce(n) => Some(f64::from(n)),
            Self::Recorded => None,
        }
    }

    /// Whether arrivals go on when answers are late, so that a queue can grow.
    pub fn is_open_loop(self) -> bool {
        matches!(self, Self::Rate(_) | Self::Recorded)
    }
}

impl fmt::Display for Offered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate(rate) => write!(f, "{rate}"),
            Self::Users(1) => f.write_str("1 user"),
            Self::Users(n) => write!(f, "{n} users"),
            Self::AllAtOnce(n) => write!(f, "{n} at once"),
            Self::Recorded => f.write_str("recorded arrivals"),
        }
    }
}

/// What was measured, with what, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// The server, without credentials.
    pub url: String,
    /// The model's name in requests.
    pub model: String,
    /// The endpoint that carried the load.
    pub endpoint: Endpoint,
    pub workload: String,
    /// The shape of the gamma distribution that gaps between arrivals are drawn from: 1 is Poisson, infinite is constant.
    pub burstiness: f64,
    /// The seed of every draw.
    pub seed: u64,
    /// When the traffic began, in seconds since the Unix epoch.
    pub started: f64,
    /// A name that the user gave.
    pub label: Option<String>,
    /// No request of an open loop was sent while so many waited for their answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrency: Option<u32>,
}
