//! Endpoints: errors, metrics, keys, tokens, and what is there in developer mode alone.

use serde_json::{Value, json};

use super::*;

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
async fn a_key_guards_the_api_and_not_the_probes() {
    let server = Server::start("--api-key one two").await;
    let get = async |path: &str, key: Option<&str>| {
        let request = client().get(format!("{}{path}", server.base));
        let request = key.iter().fold(request, |request, key| request.header("authorization", *key));
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    assert_eq!(get("/v1/models", None).await, (401, r#"{"error":"Unauthorized"}"#.to_owned()));
    for (key, status) in [("Bearer three", 401), ("Basic one", 401), ("Bearer one", 200), ("bearer two", 200)] {
        assert_eq!(get("/v1/models", Some(key)).await.0, status, "{key}");
    }
    for path in ["/health", "/metrics", "/version", "/server_info"] {
        assert_eq!(get(path, None).await.0, 200, "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn latencies_are_observed_as_a_client_sees_them() {
    let server = Server::start("--sim-speed 2").await;
    let body = json!({"prompt": prompt(40), "max_tokens": 20});
    let begun = clock::now();
    assert_eq!(server.post("/v1/completions", body).await.0, 200);
    let seen = begun.elapsed().as_secs_f64();
    let histogram = async |name: &str| {
        assert_eq!(server.metric(&format!("{name}_count")).await, 1.0);
        server.metric(&format!("{name}_sum")).await
    };
    let (first, whole) =
        (histogram("time_to_first_token_seconds").await, histogram("e2e_request_latency_seconds").await);
    let decode = 19.0 * histogram("request_time_per_output_token_seconds").await;
    assert!(whole > 0.0 && whole <= seen, "{whole} of {seen}");
    assert!(first < whole && (first + decode) < whole + 0.02, "{first} {decode} {whole}");
}

#[tokio::test]
async fn drawn_chat_prompts_have_their_length_once_the_engine_told_its_vocabulary() {
    use autotune_load::endpoints::Endpoints;
    use autotune_plan::engine::dialect;
    use autotune_records::units::{Rate, Seconds};
    use autotune_workload::{Demand, Material, Pace, Prompt, source};

    let server = Server::start("--served-model-name tiny").await;
    let space = "[slo]\nttft_p99 = \"1s\"\n[engine]\nkind = \"simulated\"\n[workload]\nkind = \"random\"\nendpoint = \"chat\"\n\
        input_tokens = { distribution = \"uniform\", min = 20, max = 60 }\noutput_tokens = 1\nshared_prefix_tokens = 30\n\
        [parameters]\nmax-num-seqs = { values = [8] }\n";
    let plan = autotune_plan::settings::parse("space.toml", space).unwrap().workload;
    let endpoints = Endpoints::new(
        server.base.clone(),
        &autotune_http::access::Access::default(),
        dialect(autotune_plan::settings::EngineKind::Simulated),
    )
    .unwrap();
    let vocabulary = endpoints.vocabulary("tiny").await.unwrap();
    assert_eq!(endpoints.tokens_and_characters("tiny", &["one two", "three"]).await, (3, 12));
    let pace = Pace { arrival_seed: 1, content_seed: 2, ..Pace::new(Demand::Open(Rate(1.0)), Seconds(99.0), 3) };
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

/// The simulated SGLang, as the program's own client of SGLang sees it.
#[tokio::test]
async fn sglang_has_its_own_endpoints_and_metrics() {
    use autotune_load::endpoints::Endpoints;
    use autotune_plan::engine::dialect;
    use autotune_plan::settings::EngineKind;

    let server =
        Server::of(args("--sim-dialect sglang --sim-metrics --max-num-seqs 7 --gpu-memory-utilization 0.9")).await;
    let sglang = dialect(EngineKind::Sglang);
    let endpoints = Endpoints::new(server.base.clone(), &autotune_http::access::Access::default(), sglang).unwrap();
    assert!(endpoints.healthy().await);
    let effective = endpoints.effective("").await;
    assert_eq!(effective.values["max-running-requests"], autotune_plan::space::Value::Int(7));
    assert_eq!(effective.values["mem-fraction-static"], autotune_plan::space::Value::Real(0.9));
    assert!(effective.kv_cache_tokens.is_some_and(|tokens| tokens > 0));
    let body = serde_json::json!({"model": "m", "prompt": prompt(64), "max_tokens": 4, "ignore_eos": true});
    for _ in 0..2 {
        assert_eq!(server.post("/v1/completions", body.clone()).await.0, 200);
    }
    let sample = endpoints.sample().await.unwrap();
    assert_eq!((sample.running, sample.waiting, sample.generation_tokens), (Some(0.0), Some(0.0), Some(8.0)));
    assert!(sample.prefix_hits.unwrap() > 0.0 && sample.prefix_hits < sample.prefix_queries, "{sample:?}");
    assert!(endpoints.empty_prefix_cache().await);
    let (before, answer) = (sample.prefix_hits, server.post("/v1/completions", body).await);
    assert_eq!((answer.0, endpoints.sample().await.unwrap().prefix_hits), (200, before), "the cache was emptied");
    for path in ["/version", "/reset_prefix_cache"] {
        assert_eq!(server.get(path).await.0, 404, "{path} is vLLM's");
    }
    server.stop().await;
    let silent = Server::of(args("--sim-dialect sglang")).await;
    assert_eq!(silent.get("/metrics").await.0, 404, "SGLang counts where it is asked to");
    silent.stop().await;
}
