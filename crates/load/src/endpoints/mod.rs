//! The engine's own endpoints beside the load: readiness, what it says it runs, and its counters.

mod tokenize;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value as Json;
use tracing::debug;

use autotune_http::access::{Access, AccessError, sentence};
use autotune_http::body::body;
use autotune_plan::engine::Dialect;
use autotune_plan::engine::effective::Effective;
use autotune_plan::engine::metrics::Page;
use autotune_plan::engine::telemetry::EngineSample;
use autotune_plan::printable::{printable, read_json};

/// No endpoint of a healthy engine takes longer, but the one below.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// For its first `/server_info`, vLLM asks the system for its packages and hardware (`vllm.collect_env`). That takes 2 s with warm files,
/// and took more than 5 s with cold ones.
const CONFIGURATION_WITHIN: Duration = Duration::from_secs(60);

/// Far more than any of these endpoints answers: a page of metrics has some 200 KB, the tokens of a long text some megabytes.
const LONGEST_ANSWER: usize = 32 << 20;

/// The text that is answered to a request, or why there is none.
async fn whole(request: reqwest::RequestBuilder) -> Result<String, String> {
    let response = request.send().await.map_err(|error| sentence(&error.without_url()))?;
    let (status, path) = (response.status(), response.url().path().to_owned());
    if !status.is_success() {
        return Err(format!("{path} answered with status {status}"));
    }
    let bytes = body(response, LONGEST_ANSWER).await.map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The requests of each worker of a Dynamo graph, or of each engine of one vLLM.
fn by_replica(page: &Page) -> BTreeMap<String, f64> {
    let workers = page.by_label("dynamo_component_requests_total", "worker_id", Some(("dynamo_endpoint", "generate")));
    if workers.is_empty() { page.by_label("vllm:request_success_total", "engine", None) } else { workers }
}

/// How many requests a page of metrics counts; `None` if it counts none of an engine.
pub fn requests_answered(page: &str) -> Option<f64> {
    by_replica(&Page::parse(page)).into_values().reduce(|a, b| a + b)
}

/// A model that a server lists.
#[derive(Clone, Debug, PartialEq)]
pub struct Served {
    /// Its name in requests.
    pub name: String,
    /// Where its weights are from.
    pub path: String,
    /// Tokens of a prompt with its answer at most.
    pub longest: Option<i64>,
}

#[derive(Clone)]
pub struct Endpoints {
    http: reqwest::Client,
    base_url: String,
    dialect: &'static dyn Dialect,
    /// How many workers must serve.
    workers: u32,
    /// Pages of metrics beside the server's own.
    pages: Vec<String>,
}

impl Endpoints {
    /// Of the server at that address.
    pub fn new(base_url: String, access: &Access, dialect: &'static dyn Dialect) -> Result<Self, AccessError> {
        let http = access.builder(&base_url)?.timeout(ANSWER_WITHIN).build()?;
        Ok(Self { http, base_url, dialect, workers: 1, pages: Vec::new() })
    }

    /// Sets the number of workers.
    #[must_use]
    pub fn of_workers(self, workers: u32) -> Self {
        Self { workers, ..self }
    }

    /// Takes the pages of metrics that the log of the start names.
    #[must_use]
    pub fn told_by(self, log: &str) -> Self {
        Self { pages: self.dialect.pages(log), ..self }
    }

    async fn get(&self, path: &str) -> Result<String, String> {
        whole(self.http.get(format!("{}{path}", self.base_url))).await
    }

    async fn json(&self, path: &str) -> Option<Json> {
        read_json(self.get(path).await.ok()?.as_bytes()).ok()
    }

    /// The answer to a question in JSON, where the engine takes it.
    pub(super) async fn ask(&self, path: &str, question: &Json) -> Option<Json> {
        let answer = whole(self.http.post(format!("{}{path}", self.base_url)).json(question)).await;
        serde_json::from_str(&answer.ok()?).ok()
    }

    /// Whether it says that it is healthy, which is necessary and never enough.
    pub async fn healthy(&self) -> bool {
        self.get(self.dialect.health()).await.is_ok_and(|says| self.dialect.serves(&says, self.workers))
    }

    /// The name of the first model that is served.
    pub async fn model(&self) -> Result<String, String> {
        Ok(self.served().await?.name)
    }

    /// The first model that is served.
    pub async fn served(&self) -> Result<Served, String> {
        let list: Json = read_json(self.get("/v1/models").await?.as_bytes()).unwrap_or_default();
        let first = &list["data"][0];
        let name = first["id"].as_str().ok_or("/v1/models lists no model")?.to_owned();
        let path = first["root"].as_str().unwrap_or(&name).to_owned();
        Ok(Served { name, path, longest: first["max_model_len"].as_i64() })
    }

    /// The configuration that the engine says it runs: its own log below its metrics below its server information.
    pub async fn effective(&self, log: &str) -> Effective {
        let mut effective = self.dialect.of_log(log);
        if let Ok(page) = self.get("/metrics").await {
            effective = effective.merge(self.dialect.of_metrics(&Page::parse(&printable(&page))));
        }
        for place in self.dialect.server_info() {
            let asked = self.http.get(format!("{}{place}", self.base_url)).timeout(CONFIGURATION_WITHIN);
            let read = |info: String| read_json(info.as_bytes()).map_err(|error| error.to_string());
            match whole(asked).await.and_then(read) {
                Ok(info) => {
                    effective = effective.merge(self.dialect.of_server_info(&info));
                    break;
                }
                Err(why) => debug!(place, why, "the engine's configuration was not read"),
            }
        }
        let version = self.json("/version").await;
        if let Some(version) = version.and_then(|v| Some(v["version"].as_str()?.to_owned())) {
            effective.version = Some(version);
        }
        effective
    }

    /// The engine's counters now, where it has a metrics page.
    pub async fn sample(&self) -> Option<EngineSample> {
        Some(self.dialect.sample(&self.page().await?))
    }

    /// How many requests each replica has had since its start, by its name; `None` if the pages do not tell replicas apart.
    pub async fn requests_by_replica(&self) -> BTreeMap<String, f64> {
        self.page().await.map_or_else(BTreeMap::new, |page| by_replica(&page))
    }

    /// The server's own page of metrics, and those beside it.
    async fn page(&self) -> Option<Page> {
        let mut text = self.get("/metrics").await.ok()?;
        for page in &self.pages {
            text += &whole(self.http.get(page)).await.ok()?;
        }
        Some(Page::parse(&text))
    }

    /// Empties the prefix cache; false where the engine does not offer it or is busy.
    pub async fn empty_prefix_cache(&self) -> bool {
        let Some(path) = self.dialect.empties_cache() else { return false };
        let answer = self.http.post(format!("{}{path}", self.base_url)).send().await;
        answer.is_ok_and(|a| a.status().is_success())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use autotune_plan::settings::EngineKind;

    #[tokio::test]
    async fn a_slow_answer_about_the_configuration_is_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}", listener.local_addr().unwrap());
        let answers = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 4096];
                let length = stream.read(&mut request).await.unwrap();
                let known = request[..length].starts_with(b"GET /server_info");
                if known {
                    tokio::time::sleep(ANSWER_WITHIN + Duration::from_secs(1)).await;
                }
                let body = if known { r#"{"vllm_config": {"scheduler_config": {"max_num_seqs": 128}}}"# } else { "{}" };
                let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
                let _ = stream.write_all((head + body).as_bytes()).await;
            }
        });
        let vllm = autotune_plan::engine::dialect(EngineKind::Vllm);
        let endpoints = Endpoints::new(base_url, &Access::default(), vllm).unwrap();
        let effective = endpoints.effective("").await;
        answers.abort();
        assert_eq!(effective.values["max-num-seqs"], autotune_plan::space::Value::Int(128));
    }
}
