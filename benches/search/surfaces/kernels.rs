//! Engines whose kernels NVIDIA timed one by one, each under traffic of one turn and of several, and some under worse. One more is a line.

use autotune::rehearsal::Deviations;
use autotune::twin::{Kernels, Noise, Profile, Start};
use autotune::units::Seconds;

use super::{Kind, Space, Surface};

/// What is asked of an engine.
struct Traffic {
    workload: &'static str,
    /// Mean context of a decoding sequence, and mean tokens of an answer.
    context: u64,
    answer: f64,
}

/// Questions of one turn.
const SINGLE: Traffic = Traffic {
    workload: "kind = \"random\"\n\
        input_tokens = { distribution = \"lognormal\", median = 700, sigma = 0.6, min = 50, max = 4000 }\n\
        output_tokens = { distribution = \"lognormal\", median = 300, sigma = 0.4, min = 100, max = 1000 }",
    context: 1000,
    answer: 325.0,
};
/// Conversations over one of a few documents, which send the engine's own answers again.
const TURNS: Traffic = Traffic {
    workload: "kind = \"conversations\"\nendpoint = \"chat\"\nstarters = 10\nturns = 5\nthink_time = \"2s\"\n\
        starter_tokens = { distribution = \"normal\", mean = 1500, sd = 300, min = 800, max = 2500 }\n\
        question_tokens = { distribution = \"lognormal\", median = 250, sigma = 0.8, min = 20, max = 2000 }\n\
        output_tokens = { distribution = \"lognormal\", median = 250, sigma = 0.4, min = 100, max = 800 }",
    context: 3000,
    answer: 270.0,
};

/// Decoding so many sequences, the limit of TPOT is not reached yet.
const SEQUENCES: u64 = 64;
/// The limit of TPOT over that step's time, and that of TTFT over the time of a prompt of 2,048 tokens.
const SLACK: (f64, f64) = (1.6, 8.0);
/// A KV cache is starved that holds no more tokens than so many sequences have.
const STARVED: u64 = 40;

const FP8: &str = "max-num-seqs = { values = [16, 32, 64, 128, 1024], default = 1024 }\n\
    max-num-batched-tokens = { values = [512, 640, 1024, 2048, 8192], default = 8192 }";
const BF16: &str = "max-num-seqs = { values = [16, 32, 64, 128, 1024], default = 1024 }\n\
    max-num-batched-tokens = { values = [256, 512, 1024, 2048, 8192], default = 8192 }";
const MEMORY: &str = "gpu-memory-utilization = { values = [0.86, 0.9, 0.94], default = 0.9 }\n\
    max-num-seqs = { values = [16, 32, 64, 1024], default = 1024 }\n\
    max-num-batched-tokens = { values = [1024, 8192], default = 8192 }";

const H200_8B: &str = "h200_sxm_llama-3.1-8b_tp1_vllm_0.24.0";
const H100_8B: &str = "h100_sxm_llama-3.1-8b_tp1_vllm_0.24.0";
const A100_8B: &str = "a100_sxm_llama-3.1-8b_tp1_vllm_0.14.0";
const L40S_8B: &str = "l40s_llama-3.1-8b_tp1_vllm_0.24.0";
const H200_70B: &str = "h200_sxm_llama-3.1-70b-fp8_tp1_vllm_0.24.0";
const H100_70B: &str = "h100_sxm_llama-3.1-70b-fp8_tp2_vllm_0.24.0";
const B200_70B: &str = "b200_sxm_llama-3.1-70b-fp8_tp1_vllm_0.24.0";
const H200_MOE: &str = "h200_sxm_qwen3-30b-a3b_tp1_vllm_0.24.0";

pub(super) fn surfaces() -> Vec<Surface> {
    use Kind::{Misses, MultiTurn, SingleTurn, Starvation};
    vec![
        surface("h200-8b-single", SingleTurn, H200_8B, &SINGLE, BF16),
        surface("h200-8b-turns", MultiTurn, H200_8B, &TURNS, BF16),
        surface("h100-8b-single", SingleTurn, H100_8B, &SINGLE, BF16),
        surface("h100-8b-turns", MultiTurn, H100_8B, &TURNS, BF16),
        surface("a100-8b-single", SingleTurn, A100_8B, &SINGLE, BF16),
        surface("a100-8b-turns", MultiTurn, A100_8B, &TURNS, BF16),
        surface("l40s-8b-single", SingleTurn, L40S_8B, &SINGLE, BF16),
        surface("l40s-8b-turns", MultiTurn, L40S_8B, &TURNS, BF16),
        surface("h200-70b-single", SingleTurn, H200_70B, &SINGLE, FP8),
        surface("h200-70b-turns", MultiTurn, H200_70B, &TURNS, FP8),
        surface("h100-70b-single", SingleTurn, H100_70B, &SINGLE, FP8),
        surface("h100-70b-turns", MultiTurn, H100_70B, &TURNS, FP8),
        surface("b200-70b-single", SingleTurn, B200_70B, &SINGLE, FP8),
        surface("b200-70b-turns", MultiTurn, B200_70B, &TURNS, FP8),
        surface("h200-moe-single", SingleTurn, H200_MOE, &SINGLE, BF16),
        surface("h200-moe-turns", MultiTurn, H200_MOE, &TURNS, BF16),
        surface("h200-8b-misses", Misses, H200_8B, &TURNS, BF16),
        surface("h200-70b-misses", Misses, H200_70B, &TURNS, FP8),
        surface("h100-8b-starved", Starvation, H100_8B, &TURNS, MEMORY),
        surface("h200-70b-starved", Starvation, H200_70B, &TURNS, MEMORY),
        drifting("h200-8b-wander", H200_8B, |noise| (noise.wander, noise.wander_seconds) = (0.05, 600.0)),
        drifting("h100-8b-stall", H100_8B, |noise| (noise.stall_chance, noise.stall_seconds) = (1e-4, 0.5)),
        drifting("l40s-8b-ageing", L40S_8B, |noise| (noise.ageing, noise.ageing_seconds) = (0.06, 600.0)),
    ]
}

fn drifting(name: &'static str, engine: &str, drift: impl Fn(&mut Noise)) -> Surface {
    let mut surface = surface(name, Kind::Drift, engine, &SINGLE, BF16);
    drift(surface.profile.noise.get_or_insert_default());
    surface
}

/// The limits are those of the engine's own table, and its probes last as long as its answers ask for.
fn surface(name: &'static str, kind: Kind, engine: &str, traffic: &Traffic, parameters: &str) -> Surface {
    let kernels = Kernels::named(engine).unwrap();
    let profile = Profile::named(engine).unwrap();
    let (tpot, ttft) = (SLACK.0 * kernels.decode_step(SEQUENCES, traffic.context), SLACK.1 * kernels.prompt_step(2048));
    let answer = traffic.answer * tpot;
    let (ramp, window) = ((3.0 * answer).clamp(5.0, 30.0), (6.0 * answer).clamp(20.0, 60.0));
    let gib = profile.memory.weights as f64 / f64::from(1 << 30);
    let mut memory = profile.memory;
    if kind == Kind::Starvation {
        // Keys and values take more room, as with another number format.
        let tokens = profile.limits(0.9, 1024, 8192).unwrap().kv_tokens();
        memory.per_kv_token =
            memory.per_kv_token * tokens / (STARVED * traffic.context).max(profile.defaults.max_model_len.into());
    }
    Surface {
        name,
        kind,
        space: Space {
            slo: format!("ttft_p99 = \"{:.0}ms\"\ntpot_p99 = \"{:.0}us\"", ttft * 1e3, tpot * 1e6),
            workload: traffic.workload.to_owned(),
            parameters: parameters.to_owned(),
            probe: format!(
                "ramp = \"{ramp:.0}s\"\nwindow = \"{window:.0}s\"\ncertify_window = \"{:.0}s\"",
                2.0 * window
            ),
        },
        profile: Profile { memory, start: Some(Start { seconds: 50.0 }), ..profile },
        deviations: Deviations {
            misses: if kind == Kind::Misses { 0.5 } else { 0.0 },
            first_start: Some(Seconds(50.0 + 2.0 * gib)),
        },
    }
}
