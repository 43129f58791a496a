//! Whether speculative decoding pays: a trial whose drafts are rarely accepted ends within its first minute of traffic.

use std::time::Duration;

use super::condition::Condition;
use super::{Server, Telemetry};
use autotune_clock as clock;
use autotune_plan::engine::diagnosis::{Cause, Consequence, Diagnosis};
use autotune_records::units::Seconds;

/// So many drafts tell an acceptance length near 1 within 0.03.
const ENOUGH: f64 = 200.0;
/// After this time fewer decide ...
const WITHIN: Duration = Duration::from_secs(30);
/// ... but not fewer than these. After twice the time it is not looked at any more.
const AT_LEAST: f64 = 30.0;
/// Between two looks at the engine's counters, of which each costs vLLM about 50 ms.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Watches the counters of an engine under load, and ends where its drafts are accepted more rarely than a trial must show. Never ends where they
/// are not, or where the engine counts no drafts.
pub(super) async fn rarely_accepts(server: &Server, least: f64) -> Diagnosis {
    let begun = clock::ticks();
    let mut before = None;
    loop {
        if let Some(now) = server.endpoints().sample().await
            && let Some(drafts) = now.drafts
        {
            let first = before.get_or_insert(now);
            let made = drafts - first.drafts.unwrap_or(0.0);
            if made >= ENOUGH || (made >= AT_LEAST && begun.elapsed() >= WITHIN) {
                let telemetry = Telemetry::of(&[(Seconds(0.0), *first), (begun.elapsed().into(), now)]);
                let condition = Condition::parse(&format!("acceptance_length>={least}"));
                match condition.and_then(|condition| condition.unmet(&telemetry, None)) {
                    Some(unmet) => return not_worth_it(&unmet, made),
                    None => break,
                }
            }
        }
        if begun.elapsed() >= 2 * WITHIN {
            break;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    std::future::pending().await
}

fn not_worth_it(unmet: &str, drafts: f64) -> Diagnosis {
    Diagnosis {
        cause: Cause::RarelyAccepted,
        line: None,
        says: format!(
            "its drafts are not worth their cost: {unmet}; seen over {drafts:.0} drafts. Random tokens have no acceptance that means anything: give text in [workload]; acceptance_length in [probe] says what is required"
        ),
        consequence: Consequence::PointOnly,
    }
}
