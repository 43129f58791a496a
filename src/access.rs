//! How a server is reached: keys, headers, certificates, and what all our HTTP clients have in common.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// vLLM's server drops a connection that idled for 5 s; we give it up before, so that no request meets a closing one.
const IDLE_CONNECTION: Duration = Duration::from_secs(3);
/// A server that is up accepts a connection at once; one that does not is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// What a server asks of whoever connects.
#[derive(Clone, Default)]
pub struct Access {
    /// Sent as a bearer token.
    pub api_key: Option<String>,
    /// More headers for every request.
    pub headers: Vec<(String, String)>,
    /// A file of certificates in PEM form that are trusted instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Trust any certificate.
    pub insecure: bool,
}

impl std::fmt::Debug for Access {
    /// Without the key and the headers' values: they are secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Access").field("headers", &names).field("ca_file", &self.ca_file).finish_non_exhaustive()
    }
}

/// Why there is no way to the server.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The HTTP library refused its set-up.
    #[error("failed to set up the HTTP client: {0}")]
    Http(String),
    /// The certificates could not be read.
    #[error("failed to read certificates from {path}: {why}")]
    Certificates {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A header that cannot be sent.
    #[error("`{0}` is no valid header; write NAME: VALUE")]
    Header(String),
}

impl From<reqwest::Error> for AccessError {
    fn from(error: reqwest::Error) -> Self {
        Self::Http(sentence(&error))
    }
}

impl Access {
    /// What all our HTTP clients have in common: no proxy, no redirect, no retry of ours, this access.
    ///
    /// # Errors
    /// Those of certificates and headers.
    pub fn builder(&self, base_url: &str) -> Result<reqwest::ClientBuilder, AccessError> {
        // Twice is once: the second call finds the provider of the first.
        drop(rustls::crypto::ring::default_provider().install_default());
        let mut headers = reqwest::header::HeaderMap::new();
        let bearer = self.api_key.iter().map(|key| ("authorization".to_owned(), format!("Bearer {key}")));
        for (name, value) in bearer.chain(self.headers.iter().cloned()) {
            let wrong = || AccessError::Header(name.clone());
            let name = reqwest::header::HeaderName::try_from(name.as_str()).map_err(|_| wrong())?;
            headers.append(name, value.parse().map_err(|_| wrong())?);
        }
        let builder = reqwest::Client::builder()
            .no_proxy()
            .default_headers(headers)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .pool_idle_timeout(IDLE_CONNECTION)
            .connect_timeout(CONNECT_TIMEOUT)
            .tls_danger_accept_invalid_certs(self.insecure);
        Ok(match &self.ca_file {
            Some(path) => builder.tls_certs_only(certificates(path)?),
            // A container without any certificate must still be able to speak plain HTTP.
            None if !base_url.starts_with("https:") => builder.tls_certs_only([]),
            None => builder,
        })
    }
}

fn certificates(path: &Path) -> Result<Vec<reqwest::Certificate>, AccessError> {
    let wrong = |why: String| AccessError::Certificates { path: path.to_owned(), why };
    let pem = std::fs::read(path).map_err(|e| wrong(e.to_string()))?;
    let found = reqwest::Certificate::from_pem_bundle(&pem).map_err(|e| wrong(e.to_string()))?;
    if found.is_empty() { Err(wrong("there is no certificate in it".into())) } else { Ok(found) }
}

/// The error and all its causes in one line, each said once.
pub fn sentence(error: &reqwest::Error) -> String {
    let mut said: Vec<String> = Vec::new();
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let text = error.to_string();
        if !said.iter().any(|earlier| earlier.contains(&text)) {
            said.push(text);
        }
        cause = error.source();
    }
    said.join(": ")
}
