//! Requests at known times, driven through the public interface; the only file of tests and benchmarks that builds a client.

use autotune::access::Access;
use autotune::load::{Client, Driven, Schedule, Target, ToTheEnd, drive};
use autotune::settings::Endpoint;
use autotune::units::Seconds;
use autotune::workload::{Message, Planned, Prompt, Source};

/// Requests whose prompts begin with their own id, so that the server's notes can be matched to the client's records.
#[derive(Clone)]
pub struct Traffic {
    /// Where requests go.
    pub endpoint: Endpoint,
    /// Tokens of every prompt.
    pub prompt_tokens: u32,
    /// Tokens of every answer.
    pub tokens: u32,
    /// When each request is due, in seconds.
    pub due: Vec<f64>,
    next: usize,
}

impl Traffic {
    /// Requests at these seconds, each for so many tokens.
    pub fn at(due: Vec<f64>, tokens: u32) -> Self {
        Self { endpoint: Endpoint::Completions, prompt_tokens: 12, tokens, due, next: 0 }
    }

    /// So many requests at this rate. Steps of the golden ratio move each within its turn: they meet no grid of a timer.
    pub fn at_rate(rate: f64, count: usize, tokens: u32) -> Self {
        Self::at((0..count).map(|i| (i as f64 + (i as f64 * 0.618_034).fract()) / rate).collect(), tokens)
    }

    /// The same as chats.
    pub fn chat(self) -> Self {
        Self { endpoint: Endpoint::Chat, ..self }
    }

    fn prompt(&self, id: u32) -> Prompt {
        match self.endpoint {
            Endpoint::Completions => {
                Prompt::Tokens((0..self.prompt_tokens).map(|i| if i == 0 { id } else { i }).collect())
            }
            Endpoint::Chat => {
                let content = format!("{id}{}", " word".repeat(self.prompt_tokens as usize - 1));
                Prompt::Messages(vec![Message { role: "user", content }])
            }
        }
    }
}

impl Source for Traffic {
    fn next_due(&self) -> Option<Seconds> {
        self.due.get(self.next).copied().map(Seconds)
    }

    fn take(&mut self) -> Option<Planned> {
        let (id, due) = (self.next as u32, self.next_due()?);
        self.next += 1;
        let (prompt_tokens, output_tokens) = (self.prompt_tokens, self.tokens);
        Some(Planned { id, due, prompt: self.prompt(id), prompt_tokens, shared_tokens: 0, output_tokens, turn: None })
    }

    fn answered(&mut self, _request: u32, _at: Seconds, _text: Option<&str>) {}
}

/// Drives the traffic against this address to its last answer, in a runtime like the program's.
pub fn driven(url: &str, model: &str, traffic: Traffic) -> Driven {
    driven_with(url, model, traffic, Access::default())
}

/// The same with keys, headers or certificates.
pub fn driven_with(url: &str, model: &str, traffic: Traffic, access: Access) -> Driven {
    let target = Target {
        base_url: url.to_owned(),
        model: model.to_owned(),
        endpoint: traffic.endpoint,
        ignore_eos: true,
        access,
        extra_body: serde_json::Map::new(),
    };
    let window_ends = Seconds(traffic.due.iter().copied().fold(0.0, f64::max));
    let schedule = Schedule { window_ends, stall_timeout: Seconds(20.0), request_timeout: None };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::new(target).unwrap();
        drive(&client, Box::new(traffic), schedule, Box::new(ToTheEnd)).await
    })
}
