//! One stream of events, drawn for a terminal or printed plainly elsewhere, and remembered for whoever asks over HTTP.

mod board;
mod exposition;
mod json;
mod listen;
mod metrics;
mod painted;
mod plain;
mod terminal;

pub(crate) use json::{JsonLines, message};

pub use autotune_session::events::{Both, Event, Silent, Sink};
pub use board::{About, Board};
pub use listen::{Bound, Listening};
pub use plain::Plain;
pub use terminal::Terminal;

/// For tests: a second at that rate.
#[cfg(test)]
fn ask_at(rate: crate::units::Rate) -> crate::rig::ProbeAsk {
    use crate::units::Seconds;
    use crate::verdict::{Awaited, Slack, Window};

    crate::rig::ProbeAsk {
        rate,
        window: Window { from: Seconds(0.0), to: Seconds(1.0) },
        arrival_seed: 1,
        content_seed: 2,
        answer_time: Seconds(0.5),
        growth: 1.0,
        slack: Slack::default(),
        awaited: Awaited::All,
    }
}
