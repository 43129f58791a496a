//! Names and memory in use of this machine's GPUs, by `nvidia-smi`.
//!
//! A static binary cannot load NVIDIA's library (NVML). The tool is in every container that has the library: the driver capability `utility`,
//! which images with CUDA ask for, adds both. Without the tool, no GPU is looked at.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The GPUs that an engine sees. Other GPUs of the machine may belong to other processes, such as another worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Gpus {
    /// All of the machine: nothing names them.
    #[default]
    All,
    /// Their numbers or names, apart by commas.
    Named(String),
    /// None: an empty `CUDA_VISIBLE_DEVICES` hides them all, for an engine on the CPU.
    Hidden,
}

/// Memory in use on GPUs together, in MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GpuMemory(pub u64);

/// Where the tool is: on the `PATH`, and where the device plugin of Google's nodes mounts it, which a pod's own `PATH` may leave out.
const TOOLS: [&str; 2] = ["nvidia-smi", "/usr/local/nvidia/bin/nvidia-smi"];
/// A driver that has not answered within this time hangs.
const TIMEOUT: Duration = Duration::from_secs(20);

async fn query(field: &str, of: Option<&str>) -> Option<String> {
    let chosen = of.map(|of| format!("--id={of}"));
    for tool in TOOLS {
        #[expect(clippy::disallowed_methods, reason = "supervise is where processes are started")]
        let output = tokio::process::Command::new(tool)
            .args([&format!("--query-gpu={field}"), "--format=csv,noheader,nounits"])
            .args(&chosen)
            .kill_on_drop(true)
            .output();
        match tokio::time::timeout(TIMEOUT, output).await.ok()? {
            Ok(output) => return output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned()),
            // It is not at this path, or may not be run.
            Err(_) => continue,
        }
    }
    None
}

impl Gpus {
    /// Those that `CUDA_VISIBLE_DEVICES` names. What the tool cannot be asked about, such as a part of a GPU, is all of them.
    pub fn named(visible: Option<&str>) -> Self {
        let known = |word: &str| {
            let digits = !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
            digits || word.strip_prefix("GPU-").is_some_and(|id| id.len() == 36)
        };
        let Some(visible) = visible else { return Self::All };
        // CUDA shows the devices before the first number that none has.
        let shown: Vec<&str> = visible.trim().split(',').take_while(|word| *word != "-1").collect();
        match shown[..] {
            [] | [""] => Self::Hidden,
            _ if shown.iter().all(|word| known(word)) => Self::Named(shown.join(",")),
            _ => Self::All,
        }
    }

    /// What the tool says of each of them, a line a GPU.
    async fn ask(&self, field: &str) -> Option<String> {
        match self {
            Self::All => query(field, None).await,
            Self::Named(chosen) => query(field, Some(chosen)).await,
            Self::Hidden => None,
        }
    }

    /// How many there are, by the tool, or else by what was named; `None` if neither tells.
    pub async fn count(&self) -> Option<u64> {
        let told = self.names().await.len() as u64;
        match self {
            _ if told > 0 => Some(told),
            Self::Named(chosen) => Some(chosen.split(',').count() as u64),
            Self::All | Self::Hidden => None,
        }
    }

    /// Memory in use, or none where there is no GPU to ask.
    pub async fn memory(&self) -> Option<GpuMemory> {
        sum(&self.ask("memory.used").await?)
    }

    /// Their names, none where there is none.
    pub async fn names(&self) -> Vec<String> {
        self.ask("name")
            .await
            .map_or(Vec::new(), |text| text.lines().map(|l| l.trim().to_owned()).filter(|l| !l.is_empty()).collect())
    }
}

fn sum(text: &str) -> Option<GpuMemory> {
    let each: Vec<u64> = text.lines().filter_map(|l| l.trim().parse().ok()).collect();
    (!each.is_empty()).then(|| GpuMemory(each.iter().sum()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gpus_of_an_engine_are_those_that_it_is_shown() {
        let uuid = "GPU-5ebe9f43-ac33-4cc5-8ad1-b3b1ee1d5f2a";
        for visible in ["1", "0,3", uuid] {
            assert_eq!(Gpus::named(Some(visible)), Gpus::Named(visible.to_owned()));
        }
        for unknown in [None, Some("MIG-1"), Some("GPU-5e"), Some("0, 1")] {
            assert_eq!(Gpus::named(unknown), Gpus::All, "{unknown:?}");
        }
        for hidden in ["", " ", "-1", "-1,0"] {
            assert_eq!(Gpus::named(Some(hidden)), Gpus::Hidden, "{hidden:?}");
        }
        assert_eq!(Gpus::named(Some("0,-1,2")), Gpus::Named("0".to_owned()));
    }

    #[test]
    fn memory_of_all_gpus_is_summed_and_no_answer_is_no_gpu() {
        assert_eq!(sum("512\n 1024\n"), Some(GpuMemory(1536)));
        assert_eq!(sum("[N/A]\n"), None);
        assert_eq!(sum(""), None);
    }
}
