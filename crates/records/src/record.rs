//! One record per request, and the compact file that keeps them: version 2 of a public format.
//!
//! The file is CSV with the header [`COLUMNS`]. Times are seconds from the start of the probe's traffic; an empty field means that it
//! did not happen or is not known. Version 2 tells failures apart more finely. New columns may be added behind; any other change is a new version.

use std::io;

use serde::{Deserialize, Serialize};

use crate::units::Seconds;

/// The columns of a request file, version 2.
pub const COLUMNS: [&str; 15] = [
    "id",
    "due",
    "sent",
    "first",
    "last",
    "tokens_in",
    "tokens_cached",
    "tokens_out",
    "asked_out",
    "error",
    "conversation",
    "turn",
    "largest_gap",
    "asked_in",
    "shared_in",
];

/// Everything known about one request.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestRecord {
    /// Counts from 0 in the order of creation.
    pub id: u32,
    /// When it was to be sent.
    pub due: Seconds,
    /// When it was handed to the connection.
    pub sent: Seconds,
    /// When the first token arrived; headers and role chunks are none.
    pub first: Option<Seconds>,
    /// When the last token arrived.
    pub last: Option<Seconds>,
    /// Prompt tokens by the engine's usage.
    pub tokens_in: Option<u32>,
    /// Prompt tokens that the prefix cache held, where the engine tells.
    pub tokens_cached: Option<u32>,
    /// Answer tokens by the engine's usage.
    pub tokens_out: Option<u32>,
    /// Answer tokens that were asked for.
    pub asked_out: u32,
    /// Prompt tokens that the workload meant, or their estimate.
    pub asked_in: u32,
    /// Those of them that the workload shares on purpose with what was sent before.
    pub shared_in: u32,
    /// What went wrong, if anything did.
    pub error: Option<ErrorClass>,
    pub turn: Option<(u32, u32)>,
    /// What the server or the system said of the failure; for people, not in files.
    pub why: Option<String>,
    /// Gaps in seconds between reads that brought tokens, in order.
    pub gaps: Vec<f32>,
}

impl RequestRecord {
    /// Time to first token, from the intended send.
    pub fn ttft(&self) -> Option<Seconds> {
        self.first.map(|first| first - self.due)
    }

    /// Time per output token; none for answers of a single token.
    pub fn tpot(&self) -> Option<Seconds> {
        let tokens = self.tokens_out.filter(|tokens| *tokens > 1)?;
        Some((self.last? - self.first?) * (1.0 / f64::from(tokens - 1)))
    }

    /// End to end, from the intended send to the last token.
    pub fn e2e(&self) -> Option<Seconds> {
        self.last.map(|last| last - self.due)
    }

    /// Whether the whole answer arrived.
    pub fn complete(&self) -> bool {
        self.error.is_none()
    }
}

/// Why a request has no whole answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorClass {
    /// The server's name could not be resolved.
    Dns,
    /// No process listens at the address.
    RefusedConnection,
    /// No secure connection: an untrusted certificate, or no TLS at all.
    Tls,
    /// Any other failure to connect, or a connection that broke before any answer.
    Connection,
    /// HTTP 429: too many requests.
    TooManyRequests,
    /// HTTP 503: the engine refuses more work.
    Unavailable,
    /// Another HTTP status than 200.
    Status,
    /// An error event inside a 200 stream.
    InStream,
    /// The stream ended without `[DONE]`, without usage or without a token.
    Truncated,
    /// Bytes that are not what an OpenAI-compatible server streams.
    Malformed,
    /// It took longer than the limit that the caller set for a request.
    Timeout,
    /// We ended the probe while it was unanswered; counted as a violation only where its limit had passed.
    Cut,
}

impl ErrorClass {
    pub const ALL: [Self; 12] = [
        Self::Dns,
        Self::RefusedConnection,
        Self::Tls,
        Self::Connection,
        Self::TooManyRequests,
        Self::Unavailable,
        Self::Status,
        Self::InStream,
        Self::Truncated,
        Self::Malformed,
        Self::Timeout,
        Self::Cut,
    ];

    /// The class of that word in files.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::RefusedConnection => "refused-connection",
            Self::Tls => "tls",
            Self::Connection => "connection",
            Self::TooManyRequests => "too-many-requests",
            Self::Unavailable => "unavailable",
            Self::Status => "status",
            Self::InStream => "in-stream",
            Self::Truncated => "truncated",
            Self::Malformed => "malformed",
            Self::Timeout => "timeout",
            Self::Cut => "cut",
        }
    }
}

/// A time as the file keeps it, in whole microseconds. Rounding the number first makes the file independent of how a half is printed.
pub fn as_kept(time: Seconds) -> Seconds {
    Seconds((time.0 * 1e6).round() / 1e6)
}

/// Writes records as CSV, header included.
pub fn write_records(records: &[RequestRecord], out: impl io::Write) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(COLUMNS)?;
    for r in records {
        let time = |t: Option<Seconds>| t.map_or(String::new(), |t| format!("{:.6}", as_kept(t).0));
        let count = |n: Option<u32>| n.map_or(String::new(), |n| n.to_string());
        csv.write_record([
            r.id.to_string(),
            time(Some(r.due)),
            time(Some(r.sent)),
            time(r.first),
            time(r.last),
            count(r.tokens_in),
            count(r.tokens_cached),
            count(r.tokens_out),
            r.asked_out.to_string(),
            r.error.map_or("", ErrorClass::name).to_owned(),
            count(r.turn.map(|t| t.0)),
            count(r.turn.map(|t| t.1)),
            r.gaps.iter().copied().reduce(f32::max).map_or(String::new(), |g| format!("{g:.6}")),
            r.asked_in.to_string(),
            r.shared_in.to_string(),
        ])?;
    }
    csv.flush()
}

impl RequestRecord {
    /// A whole answer to a request that was sent on time.
    pub fn answered(id: u32, due: f64, first: f64, last: f64, tokens_in: u32, tokens_out: u32) -> Self {
        Self {
            id,
            due: Seconds(due),
            sent: Seconds(due),
            first: Some(Seconds(first)),
            last: Some(Seconds(last)),
            tokens_in: Some(tokens_in),
            tokens_cached: None,
            tokens_out: Some(tokens_out),
            asked_out: tokens_out,
            asked_in: tokens_in,
            shared_in: 0,
            error: None,
            turn: None,
            why: None,
            gaps: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_format_is_pinned() {
        let whole = RequestRecord::answered(3, 1.5, 1.75, 2.75, 200, 11);
        let (sent, gaps) = (Seconds(1.5004), vec![0.1, 0.2]);
        let record = RequestRecord { sent, gaps, shared_in: 32, turn: Some((4, 1)), ..whole };
        let cut = RequestRecord {
            first: None,
            last: None,
            tokens_out: None,
            error: Some(ErrorClass::Cut),
            turn: None,
            gaps: vec![],
            ..record.clone()
        };
        let mut out = Vec::new();
        write_records(&[record.clone(), cut], &mut out).unwrap();
        let expected = "id,due,sent,first,last,tokens_in,tokens_cached,tokens_out,asked_out,error,conversation,turn,largest_gap,asked_in,shared_in\n\
            3,1.500000,1.500400,1.750000,2.750000,200,,11,11,,4,1,0.200000,200,32\n\
            3,1.500000,1.500400,,,200,,,11,cut,,,,200,32\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        assert_eq!(record.ttft(), Some(Seconds(0.25)));
        assert!((record.tpot().unwrap().0 - 0.1).abs() < 1e-12);
        assert_eq!(record.e2e(), Some(Seconds(1.25)));
    }
}
