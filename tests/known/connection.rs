//! One connection: request after request, each answered as its model's name asks.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use autotune::clock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep_until, timeout};

use super::script::Script;
use super::wire::{self, Body, Events, Head};
use super::{Served, Shared};

/// Serves a connection until its peer or a script ends it.
pub async fn serve(stream: std::net::TcpStream, shared: Arc<Shared>) {
    let Ok(stream) = TcpStream::from_std(stream) else { return };
    // Every event is to leave when it is written, not when the one before it was acknowledged.
    if stream.set_nodelay(true).is_ok() {
        let mut connection = Connection { stream, input: Vec::with_capacity(16 << 10), shared };
        drop(connection.run().await);
    }
}

struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    shared: Arc<Shared>,
}

/// Whether the connection outlives the answer, and how long it may then idle.
enum Next {
    Close,
    Keep(Option<Duration>),
}

impl Connection {
    async fn run(&mut self) -> io::Result<()> {
        let mut idle = None;
        while let Some((head, body)) = self.request(idle).await? {
            let next = match (head.method.as_str(), head.path.as_str()) {
                ("POST", "/v1/completions") => self.complete(&body, false).await?,
                ("POST", "/v1/chat/completions") => self.complete(&body, true).await?,
                (method, path) => {
                    let answer = self.side(method, path);
                    self.stream.write_all(&answer).await?;
                    Next::Keep(None)
                }
            };
            match next {
                Next::Keep(limit) if !head.close => idle = limit,
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    /// The next request, unless the connection was closed or idled for too long.
    async fn request(&mut self, idle: Option<Duration>) -> io::Result<Option<(Head, Vec<u8>)>> {
        if let (Some(limit), true) = (idle, self.input.is_empty()) {
            match timeout(limit, self.stream.read_buf(&mut self.input)).await {
                Ok(Ok(1..)) => {}
                _ => return Ok(None),
            }
        }
        let head = loop {
            if let Some(head) = wire::head(&self.input) {
                break head;
            }
            if self.stream.read_buf(&mut self.input).await? == 0 {
                return Ok(None);
            }
        };
        let end = head.length + head.body;
        self.input.reserve(end.saturating_sub(self.input.len()));
        while self.input.len() < end {
            if self.stream.read_buf(&mut self.input).await? == 0 {
                return Ok(None);
            }
        }
        let rest = self.input.split_off(end);
        let mut body = std::mem::replace(&mut self.input, rest);
        body.drain(..head.length);
        Ok(Some((head, body)))
    }

    /// Answers to everything that is no completion.
    fn side(&self, method: &str, path: &str) -> Vec<u8> {
        match (method, path) {
            ("GET", "/health") => wire::whole(200, "text/plain", ""),
            ("GET", "/v1/models") => {
                let model = "{\"id\":\"known\",\"object\":\"model\",\"owned_by\":\"vllm\",\"max_model_len\":1000000}";
                wire::whole(200, "application/json", &format!("{{\"object\":\"list\",\"data\":[{model}]}}"))
            }
            // For a client in another process, whose clock readings mean nothing here: spans instead of instants.
            ("GET", "/served") => wire::whole(200, "text/plain", &spans(&self.shared.take())),
            _ => wire::refusal(404, "Not Found"),
        }
    }

    async fn complete(&mut self, body: &[u8], chat: bool) -> io::Result<Next> {
        let read = clock::now();
        let number = self.shared.requests.fetch_add(1, Ordering::Relaxed);
        let Ok(body) = serde_json::from_slice::<Body>(body) else {
            self.stream.write_all(&wire::refusal(400, "the body is not understood")).await?;
            return Ok(Next::Keep(None));
        };
        let Some(script) = Script::of(&body.model).filter(|_| body.stream) else {
            self.stream.write_all(&wire::refusal(404, "no such model, or not asked to stream")).await?;
            return Ok(Next::Keep(None));
        };
        let mut served = Served { key: body.prompt().key, read, headers: None, tokens: Vec::new(), whole: false };
        let mut answer = Answer { stream: &mut self.stream, script: &script, served: &mut served };
        let next = answer.give(&body, chat, number).await;
        // A broken connection is noted as well, with what had been written.
        served.whole = next.is_ok();
        self.shared.note(served);
        next
    }
}

struct Answer<'a> {
    stream: &'a mut TcpStream,
    script: &'a Script,
    served: &'a mut Served,
}

impl Answer<'_> {
    async fn give(&mut self, body: &Body, chat: bool, number: u64) -> io::Result<Next> {
        let script = self.script;
        if script.drop {
            return Ok(Next::Close);
        }
        self.wait(script.headers).await;
        self.served.headers = Some(clock::now());
        if let Some(status) = script.status {
            self.write(&wire::refusal(status, "as the model's name asks")).await?;
            return Ok(Next::Keep(script.idle));
        }
        let (prompt, tokens) = (body.prompt(), body.tokens());
        let events = Events::new(chat, number, &body.model, prompt.tokens, tokens);
        self.write(wire::STREAM_HEAD).await?;
        if script.role && chat {
            self.write(&events.role).await?;
        }
        self.served.tokens.reserve(tokens);
        let mut batch = Vec::new();
        for first in (0..tokens).step_by(script.coalesce) {
            self.wait(script.due(first)).await;
            let until = tokens.min(first + script.coalesce);
            let event = |token: usize| match token {
                _ if script.empty == Some(token) => &events.empty,
                _ if token + 1 == tokens => &events.last,
                _ => &events.token,
            };
            let whole = (first..until).take_while(|t| script.error != Some(*t) && script.cut != Some(*t)).count();
            let at = if whole == 1 {
                Some(self.write(event(first)).await?)
            } else if whole > 1 {
                batch.clear();
                (first..first + whole).for_each(|token| batch.extend_from_slice(event(token)));
                Some(self.write(&batch).await?)
            } else {
                None
            };
            self.served.tokens.extend(at.into_iter().flat_map(|at| std::iter::repeat_n(at, whole)));
            if first + whole < until {
                if script.cut.is_some_and(|cut| cut == first + whole) {
                    let event = event(first + whole);
                    self.write(&event[..event.len() / 2]).await?;
                    return Ok(Next::Close);
                }
                self.write(&wire::stream_error()).await?;
                return self.end(None).await;
            }
        }
        if !script.late_usage.is_zero() {
            self.wait(self.served.read.elapsed() + script.late_usage).await;
        }
        self.end((body.usage() && !script.nousage).then_some(&events.usage)).await
    }

    /// Usage, `[DONE]` and the last chunk: one write each, as uvicorn does, or one for all where events are coalesced.
    async fn end(&mut self, usage: Option<&Vec<u8>>) -> io::Result<Next> {
        let done = (!self.script.nodone).then_some(wire::DONE);
        let parts = [usage.map(Vec::as_slice), done, Some(wire::END)];
        if self.script.coalesce > 1 {
            self.write(&parts.into_iter().flatten().collect::<Vec<_>>().concat()).await?;
        } else {
            for part in parts.into_iter().flatten() {
                self.write(part).await?;
            }
        }
        Ok(Next::Keep(self.script.idle))
    }

    async fn wait(&self, span: Duration) {
        if !span.is_zero() {
            let due = self.served.read + span;
            if due > clock::now() {
                sleep_until(due.into()).await;
            }
        }
    }

    /// Writes chunks; the instant is the one right before the last event's last byte (the chunk's line end comes after it).
    async fn write(&mut self, bytes: &[u8]) -> io::Result<Instant> {
        if self.script.pieces == 0 {
            let at = clock::now();
            self.stream.write_all(bytes).await?;
            return Ok(at);
        }
        let (mut at, mut written, whole_at) = (None, 0, bytes.len().saturating_sub(2));
        for piece in bytes.chunks(self.script.pieces) {
            written += piece.len();
            if at.is_none() && written >= whole_at {
                at = Some(clock::now());
            }
            self.stream.write_all(piece).await?;
            tokio::task::yield_now().await;
        }
        Ok(at.unwrap_or(self.served.read))
    }
}

/// One line per request: key, microseconds from its reading to the headers and to the first token, then the gaps between tokens.
fn spans(served: &[Served]) -> String {
    let line = |s: &Served| {
        let after = |at: Option<&Instant>| at.map_or(-1, |at| at.duration_since(s.read).as_micros() as i64);
        let (key, headers, first) = (s.key.unwrap_or(u64::MAX), after(s.headers.as_ref()), after(s.tokens.first()));
        let gaps: String = s.tokens.windows(2).map(|pair| format!(" {}", (pair[1] - pair[0]).as_micros())).collect();
        format!("{key} {headers} {first}{gaps}\n")
    };
    served.iter().map(line).collect()
}
