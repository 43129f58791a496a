//! Ways to fail, by fault and by memory.

use serde_json::json;

use super::*;

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

#[tokio::test]
async fn faults_of_the_answers_strike_after_enough_requests() {
    let body = json!({"prompt": "x y z", "max_tokens": 8, "stream": true});
    let server = Server::start("--sim-fault errors-in-load --sim-fault-after 1").await;
    assert_eq!(server.post("/v1/completions", body.clone()).await.0, 200);
    let (status, text) = server.post("/v1/completions", body.clone()).await;
    assert!(status == 500 && text.contains("EngineCore encountered an issue"), "{status} {text}");
    server.stop().await;
    let server = Server::start("--sim-fault cut-streams --sim-fault-after 0").await;
    let mut response = client().post(format!("{}/v1/completions", server.base)).json(&body).send().await.unwrap();
    let mut chunks = 0;
    let end = loop {
        match response.chunk().await {
            Ok(Some(_)) => chunks += 1,
            end => break end,
        }
    };
    // A connection that is reset may take what was not read yet with it.
    assert!(end.is_err() && chunks <= 4, "cut after {chunks} chunks: {end:?}");
    // The request is freed, and the server lives.
    assert_eq!(server.get("/health").await.0, 200);
    server.stop().await;
}

#[tokio::test]
async fn an_engine_without_its_core_is_unhealthy_before_it_ends_with_code_0() {
    for fault in ["core-killed-in-load", "core-segfault-in-load"] {
        let server = Server::start(&format!("--sim-fault {fault} --sim-fault-after 1 --sim-speed 2")).await;
        let body = json!({"prompt": "x y z", "max_tokens": 200, "stream": true});
        let long = client().post(format!("{}/v1/completions", server.base)).json(&body).send().await.unwrap();
        server.post("/v1/completions", json!({"prompt": "x", "max_tokens": 1})).await;
        let seen = events(&long.text().await.unwrap());
        assert_eq!(seen.last().unwrap()["error"]["code"], 500);
        // The streams end a moment before the API process knows why; a server that ended without a word would refuse the connection.
        while server.get("/health").await.0 != 503 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(server.code.await.unwrap(), 0, "{fault}");
    }
}

#[tokio::test]
async fn an_engine_whose_memory_does_not_bear_its_batch_dies_under_load_with_code_0() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("narrow.toml");
    // At 0.94 with 128 samplers 17 MiB are left: 4 sequences with 4 MiB each.
    let text = include_str!("../../../../profiles/quickstart.toml")
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
