//! What starts an engine: programs, Python modules and images.

use crate::settings::EngineKind;

/// Python modules that `python -m` runs as a server.
const MODULES: [(&str, Engine); 8] = [
    // vllm/entrypoints/openai/api_server.py and vllm/entrypoints/api_server.py.
    ("vllm.entrypoints.openai.api_server", Engine::Vllm),
    ("vllm.entrypoints.api_server", Engine::Vllm),
    // Dynamo's workers: components/src/dynamo/{vllm,sglang,trtllm}.
    ("dynamo.vllm", Engine::Vllm),
    ("dynamo.sglang", Engine::Sglang),
    ("dynamo.trtllm", Engine::TensorRtLlm),
    // KServe's python/huggingfaceserver, whose default backend is vLLM.
    ("huggingfaceserver", Engine::Vllm),
    ("sglang.launch_server", Engine::Sglang),
    ("tensorrt_llm.commands.serve", Engine::TensorRtLlm),
];

/// Images by the last part of their name, and whether their entry point serves with the arguments of the container.
const IMAGES: [(&str, Engine, bool); 7] = [
    // vLLM's docker/Dockerfile and docker/Dockerfile.cpu: the entry point is `vllm serve`.
    ("vllm-openai", Engine::Vllm, true),
    ("vllm-cpu", Engine::Vllm, true),
    ("vllm", Engine::Vllm, true),
    // Dynamo's container/: a shell is the entry point.
    ("vllm-runtime", Engine::Vllm, false),
    ("sglang-runtime", Engine::Sglang, false),
    ("tensorrtllm-runtime", Engine::TensorRtLlm, false),
    ("sglang", Engine::Sglang, false),
];

/// The engines whose arguments a manifest may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// vLLM, by itself or under something that passes its flags on; the simulated engine takes the same ones.
    Vllm,
    /// KServe's server for models that vLLM does not run.
    HuggingFace,
    Sglang,
    TensorRtLlm,
}

impl Engine {
    /// The one that a kind of engine launches, by itself or as a worker.
    pub fn of(kind: EngineKind) -> Self {
        match kind {
            EngineKind::Sglang | EngineKind::DynamoSglang => Self::Sglang,
            EngineKind::DynamoTrtllm => Self::TensorRtLlm,
            EngineKind::Vllm | EngineKind::Simulated | EngineKind::DynamoVllm | EngineKind::DynamoMocker => Self::Vllm,
        }
    }

    /// Its name, as its authors write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vllm => "vLLM",
            Self::HuggingFace => "the Hugging Face backend",
            Self::Sglang => "SGLang",
            Self::TensorRtLlm => "TensorRT-LLM",
        }
    }
}

pub fn basename(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// Programs that only speak of what stands behind them.
pub const SPEAK: [&str; 4] = ["echo", "printf", "pkill", "pgrep"];

/// The engine that words start, and the first word that may be an argument; not where they only speak of it.
pub fn engine_in(words: &[&str]) -> Option<(Engine, usize)> {
    let (engine, first) = engine_at(words)?;
    let speaks = words.iter().take(first).any(|word| SPEAK.contains(&basename(word)) || word.ends_with(':'));
    (!speaks).then_some((engine, first))
}

pub fn engine_at(words: &[&str]) -> Option<(Engine, usize)> {
    words.iter().enumerate().find_map(|(i, word)| {
        let engine = match (basename(word), words.get(i + 1).copied().unwrap_or_default()) {
            ("vllm", "serve") | ("autotune", "sim-engine") => Engine::Vllm,
            ("sglang", "serve") => Engine::Sglang,
            ("-m", "vllm.entrypoints.cli.main") if words.get(i + 2) == Some(&"serve") => {
                return Some((Engine::Vllm, i + 3));
            }
            ("-m", module) => MODULES.iter().find(|(name, _)| *name == module)?.1,
            ("trtllm-serve", _) => return Some((Engine::TensorRtLlm, i + 1)),
            ("docker" | "podman" | "nerdctl", "run") => return in_container(words, i + 2),
            _ => return None,
        };
        Some((engine, i + 2))
    })
}

/// The engine that `docker run` starts: the words behind the image are the container's, and go to its entry point.
fn in_container(words: &[&str], options: usize) -> Option<(Engine, usize)> {
    let (at, (_, engine, serves)) = words
        .iter()
        .enumerate()
        .skip(options)
        .find_map(|(at, word)| Some((at, image_row(word).filter(|_| is_image(word))?)))?;
    let behind = &words[at + 1..];
    let another = words[options.min(at)..at].iter().any(|word| word.starts_with("--entrypoint"));
    if let Some((engine, first)) = engine_at(behind) {
        return Some((engine, at + 1 + first));
    }
    (*serves && !another).then_some((*engine, at + 1))
}

/// Whether a word names an image with its repository, and no folder: values of options such as `--name vllm` stand before the image.
pub fn is_image(word: &str) -> bool {
    word.contains('/') && !word.contains(":/") && !word.starts_with(['/', '.', '$'])
}

fn image_row(image: &str) -> Option<&'static (&'static str, Engine, bool)> {
    let name = basename(image.split('@').next()?);
    let name = name.split(':').next().unwrap_or(name);
    IMAGES.iter().find(|(known, ..)| *known == name && !image.starts_with('-'))
}

/// The engine that an image's name says is in it.
pub fn of_image(image: &str) -> Option<Engine> {
    image_row(image).map(|(_, engine, _)| *engine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_known_by_what_starts_them() {
        let found = |line: &str| engine_in(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(found("exec /usr/bin/vllm serve m"), Some((Engine::Vllm, 3)));
        assert_eq!(found("python3 -m dynamo.trtllm --x"), Some((Engine::TensorRtLlm, 3)));
        assert_eq!(found("python -m vllm.entrypoints.openai.api_server --x"), Some((Engine::Vllm, 3)));
        assert_eq!(found("python3 -m sglang.launch_server --x"), Some((Engine::Sglang, 3)));
        assert_eq!(found("trtllm-serve m"), Some((Engine::TensorRtLlm, 1)));
        assert_eq!(found("trtllm-serve"), Some((Engine::TensorRtLlm, 1)));
        assert_eq!(found("python -m vllm.entrypoints.openai.run_batch --x"), None);
        assert_eq!(found("command: vllm serve m"), None);
        assert_eq!(found("vllm bench serve"), None);
        assert_eq!(found("echo now vllm serve m"), None);
        let run = "docker run --gpus all -p 8000:8000 docker.io/vllm/vllm-openai:v0.24.0 --model m";
        assert_eq!(found(run), Some((Engine::Vllm, 7)));
        assert_eq!(found(&run.replace("--gpus", "--entrypoint")), None);
        assert_eq!(
            found("podman run nvcr.io/nvidia/ai-dynamo/vllm-runtime:1 python3 -m dynamo.vllm"),
            Some((Engine::Vllm, 6))
        );
        assert_eq!(found("docker run nvcr.io/nvidia/ai-dynamo/vllm-runtime:1"), None);
        assert_eq!(of_image("vllm/vllm-openai:v0.24.0"), Some(Engine::Vllm));
        assert_eq!(of_image("lmcache/vllm-router:v1"), None);
    }
}
