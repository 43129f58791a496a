//! The known server: an OpenAI-compatible server whose every delay and defect is asked for by the request itself.
//!
//! It stands in for an engine where the load generator is measured. It is cheap and has no state. It notes when it wrote what,
//! so that the client's stamps can be compared with it. A request steers it by its model's name (see [`script::Script`]).

mod connection;
mod script;
mod wire;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use tokio::net::TcpSocket;
use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;

/// Thousands of streams may begin at once; the usual 128 waiting connections would make them wait a second for their retry.
const BACKLOG: u32 = 8192;

/// What the server did for one request, by the clock that the client reads too.
#[derive(Clone, Debug)]
pub struct Served {
    /// The first number of the prompt.
    pub key: Option<u64>,
    /// When the request's last byte had been read.
    pub read: Instant,
    /// Right before the response's head was written.
    pub headers: Option<Instant>,
    /// For every token, right before the last byte of its event was written.
    pub tokens: Vec<Instant>,
    /// Whether the answer was written to the end that was asked for.
    pub whole: bool,
}

/// What all connections share.
#[derive(Default)]
struct Shared {
    connections: AtomicU64,
    requests: AtomicU64,
    log: Option<Mutex<Vec<Served>>>,
}

impl Shared {
    fn note(&self, served: Served) {
        if let Some(log) = &self.log {
            log.lock().unwrap_or_else(PoisonError::into_inner).push(served);
        }
    }

    fn take(&self) -> Vec<Served> {
        let log = self.log.as_ref().map(|log| log.lock().unwrap_or_else(PoisonError::into_inner));
        log.map(|mut log| std::mem::take(&mut *log)).unwrap_or_default()
    }
}

/// A running server; it stops when this is dropped.
pub struct Known {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

impl Known {
    /// Starts on a free port of the loopback address, with so many threads of its own, and notes what it serves.
    pub fn start(threads: usize) -> io::Result<Self> {
        Self::with(threads, true)
    }

    /// As [`Known::start`]; without notes it is cheaper, and does not grow.
    pub fn with(threads: usize, noted: bool) -> io::Result<Self> {
        let shared = Arc::new(Shared { log: noted.then(Mutex::default), ..Shared::default() });
        let (stop, stopped) = watch::channel(false);
        let (handles_in, handles) = mpsc::channel::<Handle>();
        // One runtime of one thread each: a stream never moves between cores.
        let spawn = |_| {
            let (handles_in, mut stopped) = (handles_in.clone(), stopped.clone());
            std::thread::Builder::new().name("known".into()).spawn(move || {
                if let Ok(runtime) = Builder::new_current_thread().enable_all().build() {
                    drop(handles_in.send(runtime.handle().clone()));
                    drop(runtime.block_on(stopped.wait_for(|stopped| *stopped)));
                }
            })
        };
        let count = threads.max(1);
        let threads = (0..count).map(spawn).collect::<io::Result<Vec<_>>>()?;
        let handles: Vec<Handle> = handles.iter().take(count).collect();
        let first = handles.first().cloned().ok_or_else(|| io::Error::other("no runtime"))?;
        let listener = {
            let _inside = first.enter();
            let socket = TcpSocket::new_v4()?;
            socket.set_reuseaddr(true)?;
            socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
            socket.listen(BACKLOG)?
        };
        let address = listener.local_addr()?;
        let accepting = shared.clone();
        first.spawn(async move {
            for handle in handles.iter().cycle() {
                // Out of descriptors: wait for one to be closed instead of spinning.
                let Ok((stream, _)) = listener.accept().await else {
                    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                    continue;
                };
                accepting.connections.fetch_add(1, Ordering::Relaxed);
                if let Ok(stream) = stream.into_std() {
                    handle.spawn(connection::serve(stream, accepting.clone()));
                }
            }
        });
        Ok(Self { address, shared, stop, threads })
    }

    /// Such as `http://127.0.0.1:40123`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What was served since the last call, in the order of the answers' ends; a request under way is not in it yet.
    pub fn served(&self) -> Vec<Served> {
        self.shared.take()
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Completion and chat requests read so far.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
    }
}
