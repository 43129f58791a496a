//! A TCP connection with the kernel's time stamp of each read.
//!
//! The stamps stay right when the reading thread is late: because it reads several tokens at once, or because it had no core. The lateness of
//! each read is recorded.

use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, cmsg_space, recv, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use super::lateness::Lateness;
use super::threads::paused;
use autotune_clock as clock;

/// Room for one time stamp among a read's control messages.
const CONTROL: usize = cmsg_space::<TimeSpec>();
/// No read comes later than this after its bytes; a larger difference is a clock that was set.
const LATEST: Duration = Duration::from_secs(60);

pub(super) struct Socket {
    tcp: TcpStream,
    arrived: Instant,
    lateness: Arc<Lateness>,
}

impl Socket {
    /// Around a connection just made; `lateness` is told how late each read came.
    pub(super) fn new(tcp: TcpStream, lateness: Arc<Lateness>) -> io::Result<Self> {
        // Requests leave when they are written.
        tcp.set_nodelay(true)?;
        // Without stamps of the kernel, the time of the read is used.
        let _ = setsockopt(&tcp, sockopt::ReceiveTimestampns, &true);
        Ok(Self { tcp, arrived: clock::now(), lateness })
    }

    /// When the last bytes that were read had arrived.
    pub(super) fn arrived(&self) -> Instant {
        self.arrived
    }

    /// Whether the idle connection can be used again: it is open, and holds no unexpected bytes.
    pub(super) fn is_quiet(&self) -> bool {
        let peek = recv(self.tcp.as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT);
        peek == Err(Errno::EAGAIN)
    }

    /// One read of the kernel: its bytes and, where it tells, how long they had been there.
    fn receive(&self, into: &mut [u8]) -> io::Result<(usize, Option<Duration>)> {
        let mut control = [0; CONTROL];
        let mut slices = [IoSliceMut::new(into)];
        let read = recvmsg::<()>(self.tcp.as_raw_fd(), &mut slices, Some(&mut control), MsgFlags::MSG_DONTWAIT)?;
        let stamp = read.cmsgs().ok().into_iter().flatten().find_map(|message| match message {
            ControlMessageOwned::ScmTimestampns(stamp) => Some(Duration::from(stamp)),
            _ => None,
        });
        let late = stamp.map(|stamp| clock::since_epoch().saturating_sub(stamp)).filter(|late| *late < LATEST);
        Ok((read.bytes, late))
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            std::task::ready!(self.tcp.poll_read_ready(cx))?;
            let free = buf.initialize_unfilled();
            let mut received = None;
            let answer = self.tcp.try_io(Interest::READABLE, || {
                let (bytes, late) = self.receive(free)?;
                received = Some((bytes, late));
                // A read that left room has emptied the socket: `WouldBlock` saves the runtime another read.
                if bytes > 0 && bytes < free.len() { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
            });
            match (received, answer) {
                (Some((bytes, late)), _) => {
                    let now = clock::now();
                    self.arrived = late.and_then(|late| now.checked_sub(late)).unwrap_or(now);
                    if bytes > 0 {
                        self.lateness.note(late.map(|late| late.saturating_sub(paused())));
                    }
                    buf.advance(bytes);
                    return Poll::Ready(Ok(()));
                }
                (None, Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
                (None, Err(error)) => return Poll::Ready(Err(error)),
                (None, Ok(())) => {}
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}
