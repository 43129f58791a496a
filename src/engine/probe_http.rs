//! The engine's own endpoints beside the load: readiness, what it says it runs, and its counters.

use std::time::Duration;

use serde_json::Value as Json;

use super::effective::Effective;
use super::metrics::Page;
use super::telemetry::EngineSample;
use crate::access::{Access, AccessError};

/// No endpoint of a healthy engine takes longer; `/server_info` was seen to take 1.8 s on a busy CPU.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// An engine's HTTP endpoints.
#[derive(Clone)]
pub struct Endpoints {
    http: reqwest::Client,
    base_url: String,
}

impl Endpoints {
    /// Of the server at that address.
    ///
    /// # Errors
    /// Those of certificates and headers.
    pub fn new(base_url: String, access: &Access) -> Result<Self, AccessError> {
        let http = access.builder(&base_url)?.timeout(ANSWER_WITHIN).build()?;
        Ok(Self { http, base_url })
    }

    async fn get(&self, path: &str) -> Option<String> {
        let response = self.http.get(format!("{}{path}", self.base_url)).send().await.ok()?;
        if !response.status().is_success() {
            return None;
        }
        response.text().await.ok()
    }

    async fn json(&self, path: &str) -> Option<Json> {
        serde_json::from_str(&self.get(path).await?).ok()
    }

    /// The answer to a question in JSON, where the engine takes it.
    pub(super) async fn ask(&self, path: &str, question: &Json) -> Option<Json> {
        let response = self.http.post(format!("{}{path}", self.base_url)).json(question).send().await.ok()?;
        if !response.status().is_success() {
            return None;
        }
        serde_json::from_str(&response.text().await.ok()?).ok()
    }

    /// Whether `/health` answers 200. A hung engine does so too: this is necessary, never enough.
    pub async fn healthy(&self) -> bool {
        self.get("/health").await.is_some()
    }

    /// The name of the first model that is served.
    pub async fn model(&self) -> Option<String> {
        Some(self.json("/v1/models").await?["data"][0]["id"].as_str()?.to_owned())
    }

    /// The configuration that the engine says it runs: its own log below its metrics below its server information.
    pub async fn effective(&self, log: &str) -> Effective {
        let mut effective = Effective::from_log(log);
        if let Some(page) = self.get("/metrics").await {
            effective = effective.merge(Effective::from_metrics(&Page::parse(&page)));
        }
        if let Some(info) = self.json("/server_info?config_format=json").await {
            effective = effective.merge(Effective::from_server_info(&info));
        }
        if let Some(version) = self.json("/version").await.and_then(|v| Some(v["version"].as_str()?.to_owned())) {
            effective.version = Some(version);
        }
        effective
    }

    /// The engine's counters now, where it has a metrics page.
    pub async fn sample(&self) -> Option<EngineSample> {
        Some(EngineSample::from(&Page::parse(&self.get("/metrics").await?)))
    }

    /// Empties the prefix cache; false where the engine does not offer it or is busy.
    pub async fn reset_prefix_cache(&self) -> bool {
        let answer = self.http.post(format!("{}/reset_prefix_cache", self.base_url)).send().await;
        answer.is_ok_and(|a| a.status().is_success())
    }
}
