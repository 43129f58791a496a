//! A tiny model on two CPU cores, as quiet as a machine of one's own and as noisy as a shared one.

use autotune::twin::{Foreign, Noise};

use super::{Space, Surface, engine, quirks};

const NOISY: Noise = Noise { run_to_run: 0.1, step_to_step: 0.1, stall_chance: 5e-4, stall_seconds: 0.05 };
const QUIET: Noise = Noise { run_to_run: 0.02, step_to_step: 0.05, ..NOISY };
const TILES: Foreign = Foreign { tile: 12, tile_seconds: 8e-4, hidden: 0.2, late: 0.02 };

pub(super) fn surfaces() -> Vec<Surface> {
    let surface = |name, noise, foreign| Surface {
        name,
        space: Space {
            slo: "ttft_p99 = \"300ms\"\ntpot_p99 = \"15ms\"",
            workload: "kind = \"random\"\n\
                input_tokens = { distribution = \"uniform\", min = 180, max = 332 }\n\
                output_tokens = { distribution = \"uniform\", min = 22, max = 42 }",
            parameters: "max-num-seqs = { values = [4, 8, 16, 32, 64, 128], default = 128 }\n\
                max-num-batched-tokens = { values = [256, 512, 1024, 2048], default = 2048 }",
            probe: "ramp = \"2s\"\nwindow = \"8s\"\ncertify_window = \"25s\"",
        },
        profile: engine("vllm-cpu-small", 15.0, noise),
        quirks: quirks(25.0, foreign),
    };
    vec![surface("cpu-quiet", QUIET, TILES), surface("cpu-noisy", NOISY, Foreign::NONE)]
}
