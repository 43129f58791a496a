//! What the GPUs of this machine hold, asked of `nvidia-smi`.
//!
//! A static binary cannot load NVIDIA's library, and every container with a GPU has the tool. Without it there is no GPU to look at.

use serde::{Deserialize, Serialize};

/// Memory in use on all visible GPUs together, in MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GpuMemory(pub u64);

async fn query(field: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "supervise is where processes are started")]
    let output = tokio::process::Command::new("nvidia-smi")
        .args([&format!("--query-gpu={field}"), "--format=csv,noheader,nounits"])
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(std::time::Duration::from_secs(20), output).await.ok()?.ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
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
