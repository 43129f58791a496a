//! What the GPUs of this machine hold, asked of `nvidia-smi`.
//!
//! A static binary cannot load NVIDIA's library (NVML), and needs not: both are put into a container together, by the driver capability
//! `utility` that images with CUDA ask for. Without the tool there is no GPU to look at.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Memory in use on all visible GPUs together, in MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GpuMemory(pub u64);

/// Where the tool is: on the `PATH`, and where the device plugin of Google's nodes mounts it, which a pod's own `PATH` may leave out.
const TOOLS: [&str; 2] = ["nvidia-smi", "/usr/local/nvidia/bin/nvidia-smi"];
/// A driver that does not answer for so long will not.
const PATIENCE: Duration = Duration::from_secs(20);

async fn query(field: &str) -> Option<String> {
    for tool in TOOLS {
        #[expect(clippy::disallowed_methods, reason = "supervise is where processes are started")]
        let output = tokio::process::Command::new(tool)
            .args([&format!("--query-gpu={field}"), "--format=csv,noheader,nounits"])
            .kill_on_drop(true)
            .output();
        match tokio::time::timeout(PATIENCE, output).await.ok()? {
            Ok(output) => return output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned()),
            // It is not there, or not ours to run: it may be elsewhere.
            Err(_) => continue,
        }
    }
    None
}

/// Memory in use, or none where there is no GPU to ask.
pub async fn gpu_memory() -> Option<GpuMemory> {
    sum(&query("memory.used").await?)
}

/// The names of the GPUs, none where there is none.
pub async fn gpu_names() -> Vec<String> {
    query("name")
        .await
        .map_or(Vec::new(), |text| text.lines().map(|l| l.trim().to_owned()).filter(|l| !l.is_empty()).collect())
}

fn sum(text: &str) -> Option<GpuMemory> {
    let each: Vec<u64> = text.lines().filter_map(|l| l.trim().parse().ok()).collect();
    (!each.is_empty()).then(|| GpuMemory(each.iter().sum()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_all_gpus_is_summed_and_no_answer_is_no_gpu() {
        assert_eq!(sum("512\n 1024\n"), Some(GpuMemory(1536)));
        assert_eq!(sum("[N/A]\n"), None);
        assert_eq!(sum(""), None);
    }
}
