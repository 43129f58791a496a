//! The body of an answer, read up to a limit: whatever answers at an address may never end.

use reqwest::Response;

use crate::access::sentence;

/// Why there is no body.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("{path} answered with more than {} MiB; is that the right server?", at_most >> 20)]
    TooLong { path: String, at_most: usize },
    #[error("{path} broke off: {why}")]
    Broken { path: String, why: String },
}

/// The whole body, if it has at most so many bytes.
pub async fn body(mut response: Response, at_most: usize) -> Result<Vec<u8>, BodyError> {
    let path = response.url().path().to_owned();
    let too_long = || BodyError::TooLong { path: path.clone(), at_most };
    if response.content_length().is_some_and(|length| length > at_most as u64) {
        return Err(too_long());
    }
    let mut whole = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if whole.len() + chunk.len() > at_most => return Err(too_long()),
            Ok(Some(chunk)) => whole.extend_from_slice(&chunk),
            Ok(None) => return Ok(whole),
            Err(error) => return Err(BodyError::Broken { path, why: sentence(&error.without_url()) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::Router;
    use axum::body::{Body, Bytes};
    use axum::response::Response as Answer;
    use axum::routing::get;

    use super::*;
    use crate::access::Access;
    use crate::serving::{Limits, Serving, respond};

    /// A body that never ends; `told` is the length that its head tells.
    fn endless(told: Option<u64>) -> Answer {
        let piece = Bytes::from(vec![b'x'; 64 << 10]);
        let pieces = futures_util::stream::repeat_with(move || Ok::<Bytes, Infallible>(piece.clone()));
        let mut answer = respond(200, None, Body::from_stream(pieces));
        if let Some(told) = told {
            answer.headers_mut().insert("content-length", told.into());
        }
        answer
    }

    #[tokio::test]
    async fn a_body_without_an_end_is_given_up_at_its_limit() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new()
            .route("/v1/models", get(async || endless(None)))
            .route("/told", get(async || endless(Some(1 << 40))))
            .route("/short", get(async || respond(200, None, Body::from("short"))));
        let serving = Serving::start(listener, router, Limits::OWN);
        let client = Access::default().builder("http://127.0.0.1").unwrap().build().unwrap();
        let read = async |path: &str, at_most| {
            body(client.get(format!("http://{address}{path}")).send().await.unwrap(), at_most).await
        };
        for path in ["/v1/models", "/told"] {
            let error = read(path, 1 << 20).await.unwrap_err().to_string();
            assert!(error.contains(path) && error.contains("1 MiB"), "{error}");
        }
        assert_eq!(read("/short", 5).await.unwrap(), b"short");
        assert!(read("/short", 4).await.is_err());
        drop(client);
        serving.end(std::time::Duration::ZERO).await;
    }
}
