//! Lines for developers on standard error, where `RUST_LOG` asks for some. What users read comes from [`crate::progress`].
//!
//! They are of this program alone: a library may log the headers that it sends. Command lines are redacted where they are logged; headers,
//! bodies and variables are not logged.

use std::ffi::OsStr;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::{FilterExt, Targets, filter_fn};
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// What events of this program have as the beginning of their target.
const OWN: &str = env!("CARGO_CRATE_NAME");

/// Writes the events that a filter asks for from here on, and each span with what it took when it closes.
pub fn install(asked: &OsStr) -> Result<(), String> {
    let Some(asked) = filter(asked)? else { return Ok(()) };
    let own = filter_fn(|metadata| metadata.target().starts_with(OWN)).with_max_level_hint(LevelFilter::TRACE);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_span_events(FmtSpan::CLOSE)
        // Where nobody reads standard error any more, the work goes on.
        .log_internal_errors(false)
        .with_filter(asked.and(own));
    tracing_subscriber::registry().with(lines).try_init().map_err(|e| e.to_string())
}

/// Whether some events are written: a line that moves its cursor would be torn by them.
pub fn are_written() -> bool {
    LevelFilter::current() != LevelFilter::OFF
}

/// A filter as `RUST_LOG` writes it; `None` if it is empty.
fn filter(asked: &OsStr) -> Result<Option<Targets>, String> {
    let asked = asked.to_str().ok_or("it is not UTF-8")?;
    if asked.contains('[') {
        return Err("it names a span, and takes targets and levels alone".into());
    }
    let parts: Vec<&str> = asked.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    let parsed = (!parts.is_empty()).then(|| parts.join(",").parse::<Targets>());
    parsed.transpose().map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_names_targets_and_levels_and_nothing_is_none() {
        assert!(filter(OsStr::new(" ")).unwrap().is_none());
        assert!(filter(OsStr::new("autotune_session::rig=debug, warn,")).unwrap().is_some());
        assert!(filter(OsStr::new("autotune[trial]=debug")).is_err());
        assert!(filter(OsStr::new("autotune=loud")).is_err());
    }
}
