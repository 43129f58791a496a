//! TLS: the same stamps through an encrypted connection, and no connection to whom the user does not trust.

use std::net::SocketAddr;
use std::sync::Arc;

use autotune::access::Access;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::known::Known;
use crate::paired::error;
use crate::traffic::{Traffic, driven_with};

/// A door with a certificate of its own in front of a plain server; it closes when the runtime is dropped.
struct Door {
    runtime: tokio::runtime::Runtime,
    url: String,
    certificate: tempfile::NamedTempFile,
}

impl Door {
    fn before(server: &Known) -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let certificate = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(certificate.path(), made.cert.pem()).unwrap();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key.into())
            .unwrap();
        let inside: SocketAddr = server.url().trim_start_matches("http://").parse().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        runtime.spawn(async move {
            let acceptor = TlsAcceptor::from(Arc::new(config));
            while let Ok((outside, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let (Ok(mut outside), Ok(mut inside)) =
                        (acceptor.accept(outside).await, TcpStream::connect(inside).await)
                    else {
                        return;
                    };
                    inside.set_nodelay(true).unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
                });
            }
        });
        Self { runtime, url, certificate }
    }
}

#[test]
fn a_certificate_is_trusted_as_the_user_says_and_not_otherwise() {
    let server = Known::start(1).unwrap();
    let door = Door::before(&server);
    let traffic = Traffic::at_rate(50.0, 20, 4);
    let errors = |access: Access| {
        let driven = driven_with(&door.url, "known?ttft=100&itl=20", traffic.clone(), access);
        assert_eq!(driven.records.len(), 20);
        let times = driven.records.iter().filter_map(|r| r.ttft());
        assert!(times.clone().all(|t| t.0 > 0.099), "no token comes before its time");
        driven.records.iter().map(error).collect::<Vec<_>>()
    };
    assert_eq!(errors(Access::default()), vec!["tls"; 20], "a certificate that nobody vouches for");
    assert_eq!(server.requests(), 0);
    let ca_file = Some(door.certificate.path().to_owned());
    assert_eq!(errors(Access { ca_file, ..Access::default() }), vec![""; 20]);
    assert_eq!(errors(Access { insecure: true, ..Access::default() }), vec![""; 20]);
    assert_eq!(server.requests(), 40);
    drop(door.runtime);
}
