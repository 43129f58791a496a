//! The checks between two launches: the port is free, and GPU memory is back. The guardian reports that no process is left.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use tracing::debug;

use super::gpu::{GpuMemory, Gpus};

/// A driver returns memory some seconds after the process is gone.
const TIMEOUT: Duration = Duration::from_secs(60);
/// What the driver itself may hold more than before, in MiB.
const TOLERANCE: u64 = 512;

/// Why the machine is not clean.
#[derive(Debug, thiserror::Error)]
pub enum Unclean {
    #[error("port {0} is taken by another process; free it, or leave engine.port out so that a free one is chosen")]
    Port(u16),
    #[error(
        "{now} MiB of GPU memory are still in use, {before} MiB before the first launch; see what `nvidia-smi` lists"
    )]
    GpuMemory { now: u64, before: u64 },
}

/// A free port of the loopback address.
pub fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Makes sure that a server could listen on a port. Rust sets SO_REUSEADDR on listeners, so connections in TIME_WAIT do not count.
pub(crate) fn port_clean(port: u16) -> Result<(), Unclean> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map(drop).map_err(|_| Unclean::Port(port))
}

/// Waits until the GPUs' memory is back to what it was before the first launch.
pub(crate) async fn gpu_clean(gpus: &Gpus, before: Option<GpuMemory>) -> Result<(), Unclean> {
    let Some(before) = before else { return Ok(()) };
    let mut waited = Duration::ZERO;
    loop {
        match gpus.memory().await {
            Some(now) if now.0 > before.0 + TOLERANCE => {
                debug!(now = now.0, before = before.0, ?waited, "GPU memory (MiB) is not back yet");
                if waited >= TIMEOUT {
                    return Err(Unclean::GpuMemory { now: now.0, before: before.0 });
                }
            }
            _ => return Ok(()),
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        waited += Duration::from_millis(500);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_clean_is_said_with_its_remedy() {
        let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = other.local_addr().unwrap().port();
        let says = port_clean(port).unwrap_err().to_string();
        let remedy = "free it, or leave engine.port out so that a free one is chosen";
        assert_eq!(says, format!("port {port} is taken by another process; {remedy}"));
        let says = Unclean::GpuMemory { now: 9000, before: 10 }.to_string();
        let seen = "9000 MiB of GPU memory are still in use, 10 MiB before the first launch";
        assert_eq!(says, format!("{seen}; see what `nvidia-smi` lists"));
    }
}
