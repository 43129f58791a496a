//! What a model's name asks of the server: `known` or `known?ttft=20&itl=10&...`, times in milliseconds, tokens counted from 0.

use std::time::Duration;

/// One request's behaviour. The default answers at once, as fast as the socket takes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    /// The first token comes this long after the request was read.
    pub ttft: Duration,
    /// From token to token.
    pub itl: Duration,
    /// The response's headers come this long after the request was read.
    pub headers: Duration,
    /// Events in one write; all of them leave when the first of them is due.
    pub coalesce: usize,
    /// Every write is cut into pieces of this many bytes; 0 leaves it whole.
    pub pieces: usize,
    /// An extra pause before this token.
    pub stall: Option<(usize, Duration)>,
    /// An error event stands in this token's place and ends the stream, without usage.
    pub error: Option<usize>,
    /// The connection is closed in the middle of this token's event.
    pub cut: Option<usize>,
    /// The connection is closed without any answer.
    pub drop: bool,
    /// This status with a JSON error is the answer.
    pub status: Option<u16>,
    /// A chat begins with a role chunk, right after the headers.
    pub role: bool,
    /// This token has no text.
    pub empty: Option<usize>,
    /// Usage comes this long after the last token.
    pub late_usage: Duration,
    /// The connection is closed when it idled this long after the answer.
    pub idle: Option<Duration>,
    /// The stream ends without `[DONE]`.
    pub nodone: bool,
    /// The stream ends without usage, even where it was asked for.
    pub nousage: bool,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            ttft: Duration::ZERO,
            itl: Duration::ZERO,
            headers: Duration::ZERO,
            coalesce: 1,
            pieces: 0,
            stall: None,
            error: None,
            cut: None,
            drop: false,
            status: None,
            role: false,
            empty: None,
            late_usage: Duration::ZERO,
            idle: None,
            nodone: false,
            nousage: false,
        }
    }
}

impl Script {
    /// The script in a model's name; nothing where the name or a word of it is unknown, so that a typing error fails loudly.
    pub fn of(model: &str) -> Option<Self> {
        let mut script = Self::default();
        let (name, words) = model.split_once('?').unwrap_or((model, ""));
        if name != "known" {
            return None;
        }
        for word in words.split('&').filter(|w| !w.is_empty()) {
            let (key, value) = word.split_once('=').unwrap_or((word, "1"));
            match key {
                "ttft" => script.ttft = millis(value)?,
                "itl" => script.itl = millis(value)?,
                "headers" => script.headers = millis(value)?,
                "coalesce" => script.coalesce = value.parse().ok().filter(|n| *n > 0)?,
                "pieces" => script.pieces = value.parse().ok()?,
                "stall" => {
                    let (at, pause) = value.split_once(':')?;
                    script.stall = Some((at.parse().ok()?, millis(pause)?));
                }
                "error" => script.error = Some(value.parse().ok()?),
                "cut" => script.cut = Some(value.parse().ok()?),
                "drop" => script.drop = flag(value)?,
                "status" => script.status = Some(value.parse().ok()?),
                "role" => script.role = flag(value)?,
                "empty" => script.empty = Some(value.parse().ok()?),
                "late_usage" => script.late_usage = millis(value)?,
                "idle" => script.idle = Some(millis(value)?),
                "nodone" => script.nodone = flag(value)?,
                "nousage" => script.nousage = flag(value)?,
                _ => return None,
            }
        }
        Some(script)
    }

    /// When a token is due, from the reading of the request. Absolute, so that a late token delays no other.
    pub fn due(&self, token: usize) -> Duration {
        let paused = self.stall.filter(|(at, _)| token >= *at).map_or(Duration::ZERO, |(_, pause)| pause);
        self.ttft.max(self.headers) + self.itl * token as u32 + paused
    }
}

fn millis(word: &str) -> Option<Duration> {
    word.parse::<f64>().ok().and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok())
}

fn flag(word: &str) -> Option<bool> {
    match word {
        "1" => Some(true),
        "0" => Some(false),
        _ => None,
    }
}
