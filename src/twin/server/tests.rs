//! The simulated engine over a real socket, in this process: shapes of streams, usage, errors, metrics, faults.

use clap::Parser;
use serde_json::{Value, json};

use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: SimArgs,
}

fn args(words: &str) -> SimArgs {
    Cli::try_parse_from(["sim-engine", "m"].into_iter().chain(words.split_whitespace())).unwrap().args
}

fn client() -> reqwest::Client {
    crate::access::Access::default().builder("http://127.0.0.1").unwrap().build().unwrap()
}

struct Server {
    base: String,
    stop: Option<oneshot::Sender<()>>,
    code: tokio::task::JoinHandle<u8>,
}

impl Server {
    /// The server without its child process: the test binary is no engine core.
    async fn start(words: &str) -> Self {
        Self::of(args(&format!("{words} --sim-dev-mode"))).await
    }

    async fn of(args: SimArgs) -> Self {
        let flags = args.flags();
        let limits = args.sim_profile.limits_under(&flags).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel();
        let code = tokio::spawn(async move {
            let config = config(&args, &flags, limits);
            serve(listener, config, &args, async { drop(stopped.await) }).await
        });
        Self { base, stop: Some(stop), code }
    }

    async fn get(&self, path: &str) -> (u16, String) {
        let response = client().get(format!("{}{path}", self.base)).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    async fn post(&self, path: &str, body: Value) -> (u16, String) {
        let response = client().post(format!("{}{path}", self.base)).json(&body).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    async fn metric(&self, name: &str) -> f64 {
        let page = self.get("/metrics").await.1;
        let line = page.lines().find(|l| l.starts_with(&format!("vllm:{name}{{"))).unwrap_or_else(|| panic!("{name}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    async fn stop(mut self) -> u8 {
        self.stop.take().unwrap().send(()).unwrap();
        self.code.await.unwrap()
    }
}

/// The JSON of each event; the stream must be made of `data:` events and end with `[DONE]`.
fn events(stream: &str) -> Vec<Value> {
    let mut events: Vec<&str> = stream.strip_suffix("\n\n").unwrap().split("\n\n").collect();
    assert_eq!(events.pop(), Some("data: [DONE]"));
    events.iter().map(|e| serde_json::from_str(e.strip_prefix("data: ").unwrap()).unwrap()).collect()
}

fn prompt(words: usize) -> String {
    (0..words).map(|i| format!("w{i} ")).collect()
}

#[tokio::test]
async fn completions_stream_one_event_per_token_then_usage() {
    let server = Server::start("--served-model-name tiny").await;
    let body = json!({"model": "tiny", "prompt": prompt(40), "max_tokens": 5, "stream": true,
        "stream_options": {"include_usage": true}});
    let (status, stream) = server.post("/v1/completions", body.clone()).await;
    assert_eq!(status, 200);
    let seen = events(&stream);
    assert_eq!(seen.len(), 6);
    for (i, event) in seen[..5].iter().enumerate() {
        let choice = &event["choices"][0];
        assert_eq!(choice["finish_reason"], if i == 4 { json!("length") } else { Value::Null });
        assert!(choice["text"].as_str().unwrap().len() > 1);
        assert_eq!((&event["object"], &event["model"]), (&json!("text_completion"), &json!("tiny")));
        assert_eq!(event["id"], seen[5]["id"]);
    }
    assert_eq!(seen[5]["choices"], json!([]));
    let usage = |cached| {
        json!({"prompt_tokens": 40, "completion_tokens": 5, "total_tokens": 45,
            "prompt_tokens_details": {"cached_tokens": cached}})
    };
    assert_eq!(seen[5]["usage"], usage(0));
    // The same prompt again: two of its blocks are reused and the answer is the same.
    let (_, again) = server.post("/v1/completions", body.clone()).await;
    let again = events(&again);
    assert_eq!(again[5]["usage"], usage(32));
    assert_eq!(again[2]["choices"][0]["text"], seen[2]["choices"][0]["text"]);
    assert_eq!(server.post("/reset_prefix_cache", json!({})).await, (200, r#"{"success":true}"#.to_owned()));
    let (_, fresh) = server.post("/v1/completions", body).await;
    assert_eq!(events(&fresh)[5]["usage"], usage(0));
    let (_, bare) = server.post("/v1/completions", json!({"prompt": [1, 2, 3], "max_tokens": 2, "stream": true})).await;
    assert_eq!(events(&bare).len(), 2);
    assert_eq!(server.stop().await, 0);
}

#[tokio::test]
async fn chat_begins_with_a_role_that_is_no_token() {
    let server = Server::start("--no-enable-prefix-caching").await;
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "one two"}], "max_tokens": 3, "stream": true,
        "stream_options": {"include_usage": true}});
    let (_, stream) = server.post("/v1/chat/completions", body).await;
    let seen = events(&stream);
    assert_eq!(seen.len(), 5);
    assert_eq!(seen[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    assert!(seen[1]["choices"][0]["delta"].get("role").is_none());
    assert_eq!(seen[3]["choices"][0]["finish_reason"], "length");
    assert_eq!(seen[4]["usage"]["prompt_tokens"], 6);
    assert_eq!(seen[4]["usage"]["completion_tokens"], 3);
    let body = json!({"messages": [{"role": "user", "content": "one two"}], "max_tokens": 3});
    let whole: Value = serde_json::from_str(&server.post("/v1/chat/completions", body).await.1).unwrap();
    assert_eq!(whole["choices"][0]["message"]["content"].as_str().unwrap().split_whitespace().count(), 3);
    assert_eq!(whole["usage"]["total_tokens"], 9);
}

#[tokio::test]
async fn errors_and_endpoints_are_vllms() {
    let server = Server::start("--max-num-seqs 16 --max-num-batched-tokens 256 --gpu-memory-utilization 0.9").await;
    let (status, body) = server.post("/v1/completions", json!({"model": "other", "prompt": "x"})).await;
    assert_eq!((status, body.contains(r#""type":"NotFoundError""#)), (404, true));
    let (status, body) = server.post("/v1/completions", json!({"prompt": "x", "max_tokens": 1024})).await;
    assert_eq!((status, body.contains("maximum context length")), (400, true));
    let post = client().post(format!("{}/v1/completions", server.base));
    let response = post.header("content-type", "application/json").body("not json").send().await.unwrap();
    assert_eq!(response.status(), 400);
    assert_eq!(server.get("/nope").await.0, 404);
    assert_eq!(server.get("/v1/completions").await.0, 405);
    assert_eq!(server.get("/health").await, (200, String::new()));
    assert!(server.get("/version").await.1.contains("0.32.0"));
    assert!(server.get("/v1/models").await.1.contains(r#""id":"m""#));
    let info: Value = serde_json::from_str(&server.get("/server_info?config_format=json").await.1).unwrap();
    let config = &info["vllm_config"];
    assert_eq!(config["scheduler_config"]["max_num_seqs"], 16);
    assert_eq!(config["scheduler_config"]["max_num_batched_tokens"], 256);
    assert_eq!(config["cache_config"]["gpu_memory_utilization"], 0.9);
    assert_eq!(config["model_config"]["max_model_len"], 1024);
    let whole: Value =
        serde_json::from_str(&server.post("/v1/completions", json!({"prompt": "a b c"})).await.1).unwrap();
    assert_eq!(whole["usage"]["completion_tokens"], 16);
    for name in ["num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "num_preemptions_total"] {
        assert!(server.metric(name).await.abs() < 1e-12, "{name}");
    }
    assert!((server.metric("prompt_tokens_total").await - 3.0).abs() < 1e-12);
    assert!((server.metric("generation_tokens_total").await - 16.0).abs() < 1e-12);
    let page = server.get("/metrics").await.1;
    assert!(page.contains(r#"vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 1.0"#));
    assert!(page.contains(r#"gpu_memory_utilization="0.9""#) && page.contains("kv_cache_size_tokens="));
}

#[tokio::test]
async fn a_disconnect_frees_the_request() {
    let server = Server::start("").await;
    let body = json!({"prompt": "x y z", "max_tokens": 1000, "stream": true});
    let post = client().post(format!("{}/v1/completions", server.base)).json(&body);
    let mut response = post.send().await.unwrap();
    assert!(response.chunk().await.unwrap().is_some());
    assert!((server.metric("num_requests_running").await - 1.0).abs() < 1e-12);
    drop(response);
    // It frees itself within a step; what is waited for here is the kernel and a busy machine.
    for _ in 0..200 {
        if server.metric("num_requests_running").await < 0.5 {
            assert!(server.metric("kv_cache_usage_perc").await.abs() < 1e-12);
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the request still runs");
}

#[tokio::test]
async fn a_stop_ends_open_streams_with_an_error_event() {
    let server = Server::start("").await;
    let body = json!({"prompt": "x y z", "max_tokens": 1000, "stream": true});
    let post = client().post(format!("{}/v1/completions", server.base)).json(&body);
    let response = post.send().await.unwrap();
    assert_eq!(server.stop().await, 0);
    let seen = events(&response.text().await.unwrap());
    assert_eq!(seen.last().unwrap()["error"]["code"], 500);
}

#[tokio::test]
async fn faults_of_the_load_strike_after_enough_requests() {
    let load = async |server: &Server, requests: usize| {
        let body = json!({"prompt": "x y z", "max_tokens": 1, "stream": true});
        let client = client();
        let post = async || {
            let sent = client.post(format!("{}/v1/completions", server.base)).json(&body).send().await;
            drop(sent.ok()?.bytes().await);
            Some(())
        };
        futures_util::future::join_all((0..requests).map(|_| post())).await;
    };
    for (fault, code) in [("die-in-load", 1), ("oom-in-load", 0)] {
        let server = Server::start(&format!("--sim-fault {fault}")).await;
        // Only the end of the process cuts what a sudden death leaves open, so here nobody waits for the answers.
        drop(tokio::time::timeout(Duration::from_secs(2), load(&server, 200)).await);
        assert_eq!(server.code.await.unwrap(), code, "{fault}");
    }
    let server = Server::start("--sim-fault hang-in-load").await;
    load(&server, 150).await;
    let late = tokio::time::timeout(Duration::from_millis(300), load(&server, 1)).await;
    assert!(late.is_err(), "no token is sent any more");
    assert_eq!(server.get("/health").await.0, 200);
    assert!(server.metric("num_requests_waiting").await < 1.5);
    let server = Server::start("--sim-fault never-ready").await;
    assert_eq!(server.get("/health").await.0, 503);
}

#[test]
fn flags_are_judged_as_vllm_judges_them() {
    let problem = |words: &str| invalid(&args(words).flags());
    assert_eq!(problem(""), None);
    let (config, text) = problem("--max-num-batched-tokens 64").unwrap();
    assert_eq!(config, "SchedulerConfig");
    assert!(text.contains("max_num_batched_tokens (64) must be greater than or equal to max_num_seqs (128)"));
    assert_eq!(problem("--gpu-memory-utilization 1.5").unwrap().0, "CacheConfig");
    assert!(problem("--max-num-seqs 0").unwrap().1.starts_with("max_num_seqs\n"));
    let given = args("--max-num-seqs 16 --gpu-memory-utilization 0.94");
    let dictionary = "{'model_tag': 'm', 'model': 'm', 'gpu_memory_utilization': 0.94, 'max_num_seqs': 16}";
    assert_eq!(given.non_default(), dictionary);
    let unknown = Cli::try_parse_from(["sim-engine", "--sim-profile", "h200"]).err().unwrap().to_string();
    assert!(crate::twin::Profile::NAMES.iter().all(|name| unknown.contains(name)), "{unknown}");
    assert!(!args("--enable-prefix-caching --no-enable-prefix-caching").prefix_caching());
    assert!(args("--no-enable-prefix-caching --enable-prefix-caching").prefix_caching());
}

#[tokio::test]
async fn drawn_chat_prompts_have_their_length_once_the_engine_told_its_vocabulary() {
    use crate::engine::Endpoints;
    use crate::units::{Rate, Seconds};
    use crate::workload::{Demand, Material, Pace, Prompt, source};

    let server = Server::start("--served-model-name tiny").await;
    let space = "[slo]\nttft_p99 = \"1s\"\n[engine]\nkind = \"simulated\"\n[workload]\nkind = \"random\"\nendpoint = \"chat\"\n\
        input_tokens = { distribution = \"uniform\", min = 20, max = 60 }\noutput_tokens = 1\nshared_prefix_tokens = 30\n\
        [parameters]\nmax-num-seqs = { values = [8] }\n";
    let plan = crate::settings::parse("space.toml", space).unwrap().workload;
    let endpoints = Endpoints::new(server.base.clone(), &crate::access::Access::default()).unwrap();
    let vocabulary = endpoints.vocabulary("tiny").await.unwrap();
    assert!(vocabulary.exact(&plan));
    assert_eq!(endpoints.tokens_and_characters("tiny", &["one two", "three"]).await, (3, 12));
    let pace = Pace {
        demand: Demand::Open(Rate(1.0)),
        horizon: Seconds(99.0),
        arrival_seed: 1,
        content_seed: 2,
        shared_seed: 3,
        answer_time: Seconds(0.0),
    };
    let mut source = source(&plan, &Material { vocabulary, ..Material::default() }, pace);
    for _ in 0..5 {
        let planned = source.take().unwrap();
        let Prompt::Messages(messages) = &planned.prompt else { panic!("chat takes messages") };
        let body = json!({"model": "tiny", "messages": messages, "max_tokens": 1});
        let answer: Value = serde_json::from_str(&server.post("/v1/chat/completions", body).await.1).unwrap();
        assert_eq!(answer["usage"]["prompt_tokens"], planned.prompt_tokens);
        assert!((50..=90).contains(&planned.prompt_tokens));
    }
    server.stop().await;
}

#[tokio::test]
async fn a_chunk_may_hold_several_tokens_and_usage_counts_them() {
    let body = json!({"prompt": "one two", "max_tokens": 9, "stream": true, "stream_options": {"include_usage": true}});
    let mut texts = Vec::new();
    for (words, chunks) in [("", 9), ("--stream-interval 3", 4)] {
        let server = Server::start(words).await;
        let seen = events(&server.post("/v1/completions", body.clone()).await.1);
        assert_eq!(seen.len(), chunks + 1, "{seen:?}");
        assert_eq!(seen[chunks]["usage"]["completion_tokens"], 9);
        assert_eq!(seen[chunks - 1]["choices"][0]["finish_reason"], "length");
        texts.push(seen[..chunks].iter().map(|e| e["choices"][0]["text"].as_str().unwrap()).collect::<String>());
        server.stop().await;
    }
    assert_eq!(texts[0], texts[1]);
}

#[tokio::test]
async fn the_endpoints_of_developers_are_there_in_developer_mode_alone() {
    let plain = SimArgs { sim_dev_mode: false, ..args("") };
    for (args, status) in [(plain, 404), (args("--sim-dev-mode"), 200)] {
        let server = Server::of(args).await;
        assert_eq!(server.post("/reset_prefix_cache", json!({})).await.0, status);
        assert_eq!(server.get("/server_info").await.0, status);
        assert_eq!(server.get("/version").await.0, 200);
        server.stop().await;
    }
}

#[tokio::test]
async fn a_time_factor_makes_the_same_engine_faster() {
    let body = json!({"prompt": "one two three", "max_tokens": 100});
    let mut took = Vec::new();
    for words in ["", "--sim-speed 10"] {
        let server = Server::start(words).await;
        let begun = clock::now();
        assert_eq!(server.post("/v1/completions", body.clone()).await.0, 200);
        took.push(begun.elapsed().as_secs_f64());
        server.stop().await;
    }
    // A hundred steps of about 2 ms; a shared machine adds to both.
    assert!(took[0] > 0.19 && took[1] < took[0] / 2.0, "{took:?}");
}

#[test]
fn the_size_of_the_cache_can_be_given_in_bytes() {
    let given = args("--sim-profile vllm-cpu-small --kv-cache-memory-bytes 256M --max-model-len 8192");
    let limits = given.sim_profile.limits_under(&given.flags()).unwrap();
    assert_eq!(limits.kv_tokens(), 131_072);
    assert!(given.non_default().contains("'kv_cache_memory_bytes': 268435456"), "{}", given.non_default());
    assert!(Cli::try_parse_from(["sim-engine", "--kv-cache-memory-bytes", "lots"]).is_err());
}

#[tokio::test]
async fn an_engine_whose_memory_does_not_bear_its_batch_dies_under_load_with_code_0() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("narrow.toml");
    // At 0.94 with 128 samplers 17 MiB are left: 4 sequences with 4 MiB each.
    let text = include_str!("../../../profiles/quickstart.toml")
        .replace("[defaults]", "load_per_sequence = 4194304\n\n[defaults]");
    std::fs::write(&path, text).unwrap();
    let server = Server::start(&format!("--sim-profile {} --gpu-memory-utilization 0.94", path.display())).await;
    let one = || json!({"prompt": "one two three", "max_tokens": 40});
    assert_eq!(server.post("/v1/completions", one()).await.0, 200);
    let asked = (0..8).map(|_| client().post(format!("{}/v1/completions", server.base)).json(&one()).send());
    drop(futures_util::future::join_all(asked).await);
    let code = tokio::time::timeout(Duration::from_secs(5), server.code).await.unwrap().unwrap();
    assert_eq!(code, 0, "as vLLM ends when its core died");
}
