//! Llama-3.1-8B on one H200: short, long and many-turned traffic.

use autotune::twin::{Foreign, Noise, Profile, StepCosts};

use super::{Space, Surface, engine, quirks};

const NOISE: Noise = Noise { run_to_run: 0.01, step_to_step: 0.03, stall_chance: 0.0, stall_seconds: 0.0 };
const STALLS: Noise = Noise { stall_chance: 2e-5, stall_seconds: 0.1, step_to_step: 0.05, ..NOISE };
const PROBE: &str = "ramp = \"5s\"\nwindow = \"20s\"\ncertify_window = \"35s\"";
/// Other tiles than the twin's, and prefill that hides by another rule.
const TILES: Foreign = Foreign { tile: 24, tile_seconds: 6e-4, hidden: 0.15, late: 0.0 };
/// The same with tokens that come late.
const LATE: Foreign = Foreign { tile: 40, tile_seconds: 1e-3, hidden: 0.1, late: 0.05 };

fn profile(noise: Noise) -> Profile {
    engine("h200-llama8b", 54.0, noise)
}

/// The costs that a fit to probes of the real engine found, attention by pairs included.
fn fitted(noise: Noise) -> Profile {
    let costs = StepCosts {
        base: 4.4e-3,
        per_decode: 2.5e-5,
        per_context_token: 2.7e-8,
        per_prefill_token: 2.0e-5,
        overhead: 1.3e-3,
        per_prefill_pair: 8.5e-10,
        per_prefill_square: 2.8e-10,
        mixed: 5.8e-4,
        above_16: 1.7e-4,
        above_64: 1.8e-4,
        above_128: 1.7e-4,
        overlap: 0.12,
        ahead: 0.95,
        delivery: 9e-4,
        per_delivery: 5.5e-5,
    };
    Profile { costs, ..profile(noise) }
}

/// A slice of the accelerator whose last gigabytes bear a start and few sequences.
fn slice() -> Profile {
    let mut profile = profile(NOISE);
    profile.memory.total = 40 << 30;
    profile.memory.load_per_sequence = 8 << 20;
    profile.defaults.max_model_len = 8192;
    profile
}

const GENERAL: &str = "kind = \"random\"\n\
    input_tokens = { distribution = \"lognormal\", median = 800, sigma = 0.8, min = 16, max = 8000 }\n\
    output_tokens = { distribution = \"lognormal\", median = 200, sigma = 0.7, min = 8, max = 2000 }";

pub(super) fn surfaces() -> Vec<Surface> {
    let surface = |name, slo, workload, parameters, profile, foreign| Surface {
        name,
        space: Space { slo, workload, parameters, probe: PROBE },
        profile,
        quirks: quirks(66.0, foreign),
    };
    vec![
        surface(
            "8b-short-chat",
            "ttft_p99 = \"500ms\"\ntpot_p99 = \"9ms\"",
            "kind = \"random\"\n\
             input_tokens = { distribution = \"lognormal\", median = 180, sigma = 0.6, min = 16, max = 1500 }\n\
             output_tokens = { distribution = \"lognormal\", median = 90, sigma = 0.5, min = 8, max = 400 }",
            "max-num-seqs = { values = [16, 32, 48, 64, 96, 128, 192, 256, 512, 1024], default = 1024 }\n\
             max-num-batched-tokens = { values = [256, 512, 1024, 2048, 8192], default = 8192 }",
            profile(NOISE),
            Foreign::NONE,
        ),
        surface(
            "8b-general",
            "ttft_p99 = \"2s\"\ntpot_p99 = \"12ms\"",
            GENERAL,
            "max-num-seqs = { values = [16, 32, 48, 64, 96, 128, 192, 256, 512, 1024], default = 1024 }\n\
             max-num-batched-tokens = { values = [512, 1024, 2048, 4096, 8192, 16384], default = 8192 }",
            fitted(STALLS),
            TILES,
        ),
        surface(
            "8b-long-prompts",
            "ttft_p99 = \"1500ms\"",
            "kind = \"random\"\n\
             input_tokens = { distribution = \"normal\", mean = 6000, sd = 1500, min = 1000, max = 12000 }\n\
             output_tokens = { distribution = \"uniform\", min = 100, max = 300 }",
            "max-num-seqs = { values = [8, 16, 32, 64, 128, 256, 1024], default = 256 }\n\
             max-num-batched-tokens = { values = [1024, 2048, 4096, 8192, 16384, 32768], default = 1024 }",
            fitted(NOISE),
            Foreign::NONE,
        ),
        surface(
            "8b-tpot-alone",
            "tpot_p99 = \"14ms\"",
            "kind = \"random\"\n\
             input_tokens = { distribution = \"lognormal\", median = 500, sigma = 0.9, min = 16, max = 8000 }\n\
             output_tokens = { distribution = \"uniform\", min = 20, max = 100 }",
            "max-num-seqs = { values = [128, 192, 256, 384, 512, 1024], default = 256 }\n\
             max-num-batched-tokens = { values = [256, 512, 768, 1024, 1536, 2048, 4096, 8192], default = 2048 }",
            fitted(STALLS),
            TILES,
        ),
        surface(
            "8b-conversations",
            "ttft_p99 = \"2s\"\ntpot_p99 = \"7500us\"",
            "kind = \"conversations\"\nendpoint = \"completions\"\nstarters = 8\nturns = 4\nthink_time = \"2s\"\n\
             starter_tokens = { distribution = \"uniform\", min = 1000, max = 2000 }\n\
             question_tokens = { distribution = \"uniform\", min = 30, max = 120 }\n\
             output_tokens = { distribution = \"lognormal\", median = 150, sigma = 0.5, min = 16, max = 600 }",
            "max-num-seqs = { values = [32, 64, 96, 128, 192, 256, 1024], default = 1024 }\n\
             max-num-batched-tokens = { values = [256, 512, 1024, 2048, 8192], default = 8192 }\n\
             enable-prefix-caching = { values = [true, false], default = true }",
            profile(STALLS),
            LATE,
        ),
        surface(
            "8b-memory-cliff",
            "ttft_p99 = \"2s\"\ntpot_p99 = \"40ms\"",
            "kind = \"random\"\n\
             input_tokens = { distribution = \"uniform\", min = 200, max = 800 }\n\
             output_tokens = { distribution = \"uniform\", min = 300, max = 700 }",
            "max-num-seqs = { values = [64, 96, 128, 192, 256, 512], default = 512 }\n\
             gpu-memory-utilization = { values = [0.7, 0.8, 0.85, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97], default = 0.85 }\n\
             max-num-batched-tokens = { values = [2048, 8192], default = 8192 }",
            slice(),
            Foreign::NONE,
        ),
        surface(
            "8b-unreachable",
            "ttft_p99 = \"500ms\"\ntpot_p99 = \"4ms\"",
            GENERAL,
            "max-num-seqs = { values = [16, 64, 256, 1024], default = 1024 }\n\
             max-num-batched-tokens = { values = [512, 1024, 2048, 4096, 8192], default = 8192 }",
            profile(NOISE),
            Foreign::NONE,
        ),
        surface(
            "8b-flat",
            "ttft_p99 = \"10s\"\ntpot_p99 = \"40ms\"",
            GENERAL,
            "max-num-seqs = { values = [256, 320, 384, 512, 768, 1024], default = 1024 }\n\
             max-num-batched-tokens = { values = [8192, 10240, 12288, 16384], default = 8192 }",
            fitted(STALLS),
            TILES,
        ),
        surface(
            "8b-dead-dimension",
            "ttft_p99 = \"2s\"\ntpot_p99 = \"12ms\"",
            GENERAL,
            "max-num-seqs = { values = [16, 32, 48, 64, 96, 128, 192, 256, 512, 1024], default = 1024 }\n\
             max-num-batched-tokens = { values = [512, 1024, 2048, 4096, 8192, 16384], default = 8192 }\n\
             enable-prefix-caching = { values = [true, false], default = true }",
            fitted(STALLS),
            TILES,
        ),
        surface(
            "8b-five-parameters",
            "ttft_p99 = \"2s\"\ntpot_p99 = \"12ms\"",
            GENERAL,
            "max-num-seqs = { values = [32, 64, 128, 1024], default = 1024 }\n\
             max-num-batched-tokens = { values = [1024, 2048, 8192], default = 8192 }\n\
             gpu-memory-utilization = { values = [0.85, 0.92, 0.95], default = 0.92 }\n\
             enable-prefix-caching = { values = [true, false], default = true }\n\
             max-model-len = { values = [16384, 131072], default = 131072 }",
            fitted(NOISE),
            Foreign::NONE,
        ),
    ]
}
