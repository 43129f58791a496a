//! Llama-3.1-70B in FP8 on one H200: mostly bound by its KV cache.

use autotune::twin::{Foreign, Noise, Profile};

use super::{Space, Surface, engine, quirks};

const NOISE: Noise = Noise { run_to_run: 0.005, step_to_step: 0.03, stall_chance: 0.0, stall_seconds: 0.0 };
const STALLS: Noise = Noise { stall_chance: 2e-5, stall_seconds: 0.3, step_to_step: 0.05, ..NOISE };
const PROBE: &str = "ramp = \"30s\"\nwindow = \"60s\"\ncertify_window = \"2m\"";
/// Other tiles than the twin's, and prefill that hides by another rule.
const TILES: Foreign = Foreign { tile: 48, tile_seconds: 2.5e-3, hidden: 0.1, late: 0.0 };

fn profile(noise: Noise) -> Profile {
    engine("h200-llama70b", 55.0, noise)
}

/// With keys and values of two bytes: half as many fit.
fn wide_cache(noise: Noise) -> Profile {
    let mut profile = profile(noise);
    profile.memory.per_kv_token *= 2;
    profile.defaults.max_model_len = 32_768;
    profile
}

pub(super) fn surfaces() -> Vec<Surface> {
    let surface = |name, slo, workload, parameters, profile, foreign| Surface {
        name,
        space: Space { slo, workload, parameters, probe: PROBE },
        profile,
        quirks: quirks(194.0, foreign),
    };
    vec![
        surface(
            "70b-documents",
            "ttft_p99 = \"2s\"\ntpot_p99 = \"60ms\"",
            "kind = \"conversations\"\nendpoint = \"completions\"\nstarters = 24\nturns = 5\nthink_time = \"5s\"\n\
             starter_tokens = { distribution = \"normal\", mean = 3450, sd = 500, min = 2000, max = 5000 }\n\
             question_tokens = { distribution = \"uniform\", min = 20, max = 60 }\n\
             output_tokens = { distribution = \"lognormal\", median = 400, sigma = 0.35, min = 50, max = 800 }",
            "gpu-memory-utilization = { values = [0.88, 0.9, 0.92, 0.94, 0.96, 0.97], default = 0.9 }\n\
             max-num-seqs = { values = [48, 64, 96, 1024], default = 1024 }\n\
             max-num-batched-tokens = { values = [2048, 8192], default = 8192 }",
            wide_cache(NOISE),
            Foreign::NONE,
        ),
        surface(
            "70b-long-answers",
            "ttft_p99 = \"3s\"\ntpot_p99 = \"70ms\"",
            "kind = \"random\"\n\
             input_tokens = { distribution = \"uniform\", min = 200, max = 1000 }\n\
             output_tokens = { distribution = \"lognormal\", median = 900, sigma = 0.3, min = 200, max = 2000 }",
            "gpu-memory-utilization = { values = [0.84, 0.86, 0.88, 0.9, 0.92, 0.94, 0.96], default = 0.88 }\n\
             max-num-seqs = { values = [64, 96, 128, 192, 256, 1024], default = 1024 }\n\
             max-num-batched-tokens = { values = [2048, 8192], default = 8192 }",
            wide_cache(STALLS),
            TILES,
        ),
        surface(
            "70b-even",
            "ttft_p99 = \"10s\"\ntpot_p99 = \"45ms\"",
            "kind = \"random\"\n\
             input_tokens = { distribution = \"lognormal\", median = 1900, sigma = 0.3, min = 400, max = 5000 }\n\
             output_tokens = { distribution = \"lognormal\", median = 650, sigma = 0.3, min = 200, max = 1500 }",
            "max-num-seqs = { values = [16, 32, 48, 64, 96, 128, 256, 1024], default = 1024 }\n\
             max-num-batched-tokens = { values = [512, 1024, 2048, 4096, 8192, 16384], default = 8192 }",
            profile(STALLS),
            TILES,
        ),
        surface(
            "70b-flat",
            "ttft_p99 = \"20s\"\ntpot_p99 = \"120ms\"",
            "kind = \"random\"\n\
             input_tokens = { distribution = \"uniform\", min = 500, max = 1500 }\n\
             output_tokens = { distribution = \"uniform\", min = 200, max = 600 }",
            "max-num-seqs = { values = [256, 320, 384, 512, 1024], default = 1024 }\n\
             max-num-batched-tokens = { values = [8192, 12288, 16384, 24576], default = 8192 }",
            profile(NOISE),
            Foreign::NONE,
        ),
    ]
}
