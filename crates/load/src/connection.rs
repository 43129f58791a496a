//! Connections to one server: a pool of idle ones, new ones where none is idle, and the error class of each failure.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::lateness::Lateness;
use super::socket::Socket;
use autotune_clock as clock;
use autotune_http::access::{Access, AccessError, CONNECT_TIMEOUT, IDLE_CONNECTION, plain_address};
use autotune_records::ErrorClass;

/// Why a connection or its answer failed.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    pub(super) class: ErrorClass,
    pub(super) why: String,
}

impl Failed {
    pub(super) fn new(class: ErrorClass, why: impl ToString) -> Self {
        Self { class, why: why.to_string() }
    }
}

pub(super) struct Server {
    host: String,
    port: u16,
    /// Host and port as the `Host` header has them.
    pub(super) authority: String,
    /// The beginning of every path.
    pub(super) prefix: String,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    // Resolved once, so that a slow resolver does not count as a slow engine.
    addresses: OnceCell<Vec<SocketAddr>>,
}

impl Server {
    pub(super) fn new(base_url: &str, access: &Access) -> Result<Self, AccessError> {
        let wrong = |why: &str| AccessError::Url(why.to_owned());
        let url = plain_address(base_url)?;
        let host = url.host_str().ok_or_else(|| wrong("it names no host"))?.to_owned();
        let port = url.port_or_known_default().ok_or_else(|| wrong("it names no port"))?;
        let authority = url.port().map_or(host.clone(), |port| format!("{host}:{port}"));
        let prefix = url.path().trim_end_matches('/').to_owned();
        // Only a URL has brackets around an IPv6 address.
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let tls = match url.scheme() {
            "https" => {
                let name = ServerName::try_from(host.clone()).map_err(|e| wrong(&e.to_string()))?;
                Some((TlsConnector::from(Arc::new(access.tls(base_url)?)), name))
            }
            _ => None,
        };
        Ok(Self { host, port, authority, prefix, tls, addresses: OnceCell::new() })
    }

    async fn connect(&self, lateness: &Arc<Lateness>) -> Result<Connection, Failed> {
        let lookup = || async {
            let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await?;
            Ok::<_, io::Error>(found.collect::<Vec<SocketAddr>>())
        };
        let addresses = self.addresses.get_or_try_init(lookup).await.map_err(|e| Failed::new(ErrorClass::Dns, e))?;
        let mut failed = Failed::new(ErrorClass::Dns, format!("{} has no address", self.host));
        for address in addresses {
            match in_time(TcpStream::connect(address)).await {
                Ok(tcp) => return self.secured(tcp, lateness).await,
                Err(error) => {
                    let refused = error.kind() == io::ErrorKind::ConnectionRefused;
                    let class = if refused { ErrorClass::RefusedConnection } else { ErrorClass::Connection };
                    failed = Failed::new(class, format!("{address}: {error}"));
                }
            }
        }
        Err(failed)
    }

    async fn secured(&self, tcp: TcpStream, lateness: &Arc<Lateness>) -> Result<Connection, Failed> {
        let socket = Socket::new(tcp, lateness.clone()).map_err(|e| Failed::new(ErrorClass::Connection, e))?;
        let Some((connector, name)) = &self.tls else { return Ok(Connection::Plain(socket)) };
        let stream = in_time(connector.connect(name.clone(), socket)).await;
        stream.map(|stream| Connection::Tls(Box::new(stream))).map_err(|e| Failed::new(ErrorClass::Tls, e))
    }
}

async fn in_time<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(CONNECT_TIMEOUT, step).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// One connection, with or without TLS.
pub(super) enum Connection {
    Plain(Socket),
    Tls(Box<TlsStream<Socket>>),
}

impl Connection {
    fn socket(&self) -> &Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }

    /// When the last bytes that were read had arrived.
    pub(super) fn arrived(&self) -> Instant {
        self.socket().arrived()
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// The idle connections of one reading thread, the freshest last.
#[derive(Default)]
pub(super) struct Pool(Mutex<Vec<(Instant, Connection)>>);

impl Pool {
    /// An idle connection that is still usable, or a new one. It is checked before the request is sent: a request is never sent twice. A
    /// connection that breaks later is a failure of the request.
    pub(super) async fn take(&self, server: &Server, lateness: &Arc<Lateness>) -> Result<Connection, Failed> {
        while let Some((since, idle)) = self.pop() {
            if since.elapsed() < IDLE_CONNECTION && idle.socket().is_quiet() {
                return Ok(idle);
            }
        }
        server.connect(lateness).await
    }

    /// Keeps a connection for the next request.
    pub(super) fn give(&self, connection: Connection) {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock::now();
        // The oldest are first. They are closed here, since `take` uses the newest.
        let stale = idle.partition_point(|(since, _)| now.saturating_duration_since(*since) >= IDLE_CONNECTION);
        drop(idle.drain(..stale));
        idle.push((now, connection));
    }

    fn pop(&self) -> Option<(Instant, Connection)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}
