//! Streams and whole answers: shapes, usage, several tokens a chunk.

use serde_json::{Value, json};

use super::*;

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
async fn accepted_drafts_share_a_chunk_and_are_counted() {
    let config = r#"--speculative-config={"method":"ngram","num_speculative_tokens":4} --sim-acceptance"#;
    let body =
        json!({"prompt": "one two", "max_tokens": 41, "stream": true, "stream_options": {"include_usage": true}});
    let mut texts = Vec::new();
    for (acceptance, chunks) in [("1", 1..=9), ("0", 41..=41), ("0.6", 10..=35)] {
        let server = Server::start(&format!("{config} {acceptance}")).await;
        let seen = events(&server.post("/v1/completions", body.clone()).await.1);
        let (usage, seen) = seen.split_last().unwrap();
        assert!(chunks.contains(&seen.len()), "{acceptance}: {}", seen.len());
        assert_eq!(usage["usage"]["completion_tokens"], 41);
        texts.push(seen.iter().map(|e| e["choices"][0]["text"].as_str().unwrap()).collect::<String>());
        let accepted = server.metric("spec_decode_num_accepted_tokens_total").await;
        assert_eq!(accepted as usize, 41 - seen.len(), "a step emits what it accepts, and one");
        let info: Value = serde_json::from_str(&server.get("/server_info?config_format=json").await.1).unwrap();
        assert_eq!(info["vllm_config"]["speculative_config"]["method"], "ngram");
        server.stop().await;
    }
    assert!(texts.iter().all(|text| *text == texts[0]), "the words do not depend on how they are found");
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
