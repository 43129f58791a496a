//! How a server is reached: keys, headers, certificates, and what all our HTTP clients have in common.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_platform_verifier::BuilderVerifierExt;

use autotune_plan::settings::Secrets;

/// vLLM's server drops a connection that idled for 5 s; we give it up before, so that no request meets a closing one.
pub const IDLE_CONNECTION: Duration = Duration::from_secs(3);
/// A server that is up accepts a connection at once; one that does not is not there.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// What a server asks of whoever connects.
#[derive(Clone, Default)]
pub struct Access {
    /// Sent as a bearer token.
    pub api_key: Option<String>,
    /// More headers for every request.
    pub headers: Vec<(String, String)>,
    /// A file of certificates in PEM form that are trusted instead of the system's.
    pub ca_file: Option<PathBuf>,
    pub insecure: bool,
    /// What else must not be repeated where the server says it.
    pub hidden: Secrets,
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
    #[error("failed to set up the HTTP client: {0}")]
    Http(String),
    #[error("failed to read certificates from {path}: {why}")]
    Certificates { path: PathBuf, why: String },
    /// The address is none. Its text is not repeated: it may hold a password.
    #[error("failed to understand the address: {0}; write it as http://HOST:PORT")]
    Url(String),
    #[error(
        "the address holds a user name or a password, which would stand in every result: give them as a header instead, such as --header 'Authorization: Basic ...'"
    )]
    Userinfo,
    /// The address holds a query, which no path can be added to, and which may hold a key.
    #[error(
        "the address holds a query (?...) or a fragment (#...): give scheme, host, port and path alone, and keys as a header"
    )]
    Query,
    #[error("`{0}` is no valid header; write NAME: VALUE")]
    Header(String),
}

impl From<reqwest::Error> for AccessError {
    fn from(error: reqwest::Error) -> Self {
        Self::Http(sentence(&error))
    }
}

impl Access {
    /// The headers that every request bears.
    pub fn header_map(&self) -> Result<HeaderMap, AccessError> {
        let mut map = HeaderMap::new();
        let bearer = self.api_key.iter().map(|key| ("authorization".to_owned(), format!("Bearer {key}")));
        for (name, value) in bearer.chain(self.headers.iter().cloned()) {
            let wrong = || AccessError::Header(name.clone());
            let name = HeaderName::try_from(name.as_str()).map_err(|_| wrong())?;
            let mut value: HeaderValue = value.parse().map_err(|_| wrong())?;
            // Whoever prints the client of a server does not print this.
            value.set_sensitive(true);
            map.append(name, value);
        }
        Ok(map)
    }

    /// What must not be repeated where the server says it.
    pub fn secrets(&self) -> Secrets {
        let values = self.headers.iter().map(|(_, value)| value);
        Secrets::new(self.api_key.iter().chain(values).cloned()).and(self.hidden.clone())
    }

    /// How TLS is spoken to a server at that address; plain HTTP needs no certificate, and a container may have none.
    pub fn tls(&self, base_url: &str) -> Result<ClientConfig, AccessError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|e| AccessError::Http(e.to_string()))?;
        if self.insecure {
            let anyone = Arc::new(Anyone(provider));
            return Ok(builder.dangerous().with_custom_certificate_verifier(anyone).with_no_client_auth());
        }
        let mut roots = RootCertStore::empty();
        match &self.ca_file {
            Some(path) => {
                let wrong = |why: String| AccessError::Certificates { path: path.clone(), why };
                for certificate in CertificateDer::pem_file_iter(path).map_err(|e| wrong(e.to_string()))? {
                    let certificate = certificate.map_err(|e| wrong(e.to_string()))?;
                    roots.add(certificate).map_err(|e| wrong(e.to_string()))?;
                }
                if roots.is_empty() {
                    return Err(wrong("there is no certificate in it".into()));
                }
            }
            None if base_url.starts_with("https:") => {
                let builder = builder.with_platform_verifier().map_err(|e| AccessError::Http(e.to_string()))?;
                return Ok(builder.with_no_client_auth());
            }
            None => {}
        }
        Ok(builder.with_root_certificates(roots).with_no_client_auth())
    }

    /// The HTTP library's client for whatever is not load: no proxy, no redirect, no retry, this access.
    pub fn builder(&self, base_url: &str) -> Result<reqwest::ClientBuilder, AccessError> {
        Ok(reqwest::Client::builder()
            .no_proxy()
            .default_headers(self.header_map()?)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .pool_idle_timeout(IDLE_CONNECTION)
            .connect_timeout(CONNECT_TIMEOUT)
            .tls_backend_preconfigured(self.tls(base_url)?))
    }
}

/// Refuses an address with a user name, a password or a query in it, without repeating it.
pub fn plain_address(base_url: &str) -> Result<reqwest::Url, AccessError> {
    let url = reqwest::Url::parse(base_url).map_err(|e| AccessError::Url(e.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        Err(AccessError::Url("it does not begin with http:// or https://".to_owned()))
    } else if !url.username().is_empty() || url.password().is_some() {
        Err(AccessError::Userinfo)
    } else if url.query().is_some() || url.fragment().is_some() {
        Err(AccessError::Query)
    } else {
        Ok(url)
    }
}

/// Trusts every certificate, for whoever asked for that; signatures are still checked.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// The error and all its causes in one line, each said once.
pub fn sentence(error: &(dyn Error + 'static)) -> String {
    let mut said: Vec<String> = Vec::new();
    let mut cause = Some(error);
    while let Some(error) = cause {
        let text = error.to_string();
        if !said.iter().any(|earlier| earlier.contains(&text)) {
            said.push(text);
        }
        cause = error.source();
    }
    said.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_with_a_secret_is_refused_and_not_repeated() {
        for address in [
            "http://me:hush@h:1",
            "http://me:hush@h h",
            "me:hush@h:1",
            "http://hush@h:1/v1",
            "http://h:1/?api_key=hush",
            "http://h:1/#hush",
        ] {
            let error = plain_address(address).unwrap_err().to_string();
            assert!(!error.contains("hush"), "{error}");
        }
        assert!(plain_address("https://h:1/a/b").is_ok());
    }
}
