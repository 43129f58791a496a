//! Two fast engines whose steps follow the formula that the twin fits.

use autotune::rehearsal::Deviations;
use autotune::twin::{Noise, Profile, Start};
use autotune::units::Seconds;

use super::{Kind, Space, Surface};

pub(super) fn surfaces() -> Vec<Surface> {
    let steady = Noise { run_to_run: 0.01, step_to_step: 0.03, ..Noise::default() };
    let uneven =
        Noise { run_to_run: 0.02, step_to_step: 0.05, stall_chance: 5e-4, stall_seconds: 0.05, ..Noise::default() };
    let surface = |name, profile, (start, first), noise, [slo, workload, parameters, probe]: [&str; 4]| Surface {
        name,
        kind: Kind::Formula,
        space: Space {
            slo: slo.to_owned(),
            workload: workload.to_owned(),
            parameters: parameters.to_owned(),
            probe: probe.to_owned(),
        },
        profile: Profile {
            start: Some(Start { seconds: start }),
            noise: Some(noise),
            ..Profile::named(profile).unwrap()
        },
        deviations: Deviations { misses: 0.0, first_start: Some(Seconds(first)) },
    };
    vec![
        surface(
            "8b-short-chat",
            "h200-llama8b",
            (54.0, 66.0),
            steady,
            [
                "ttft_p99 = \"500ms\"\ntpot_p99 = \"9ms\"",
                "kind = \"random\"\n\
                 input_tokens = { distribution = \"lognormal\", median = 180, sigma = 0.6, min = 16, max = 1500 }\n\
                 output_tokens = { distribution = \"lognormal\", median = 90, sigma = 0.5, min = 8, max = 400 }",
                "max-num-seqs = { values = [16, 32, 48, 64, 96, 128, 192, 256, 512, 1024], default = 1024 }\n\
                 max-num-batched-tokens = { values = [256, 512, 1024, 2048, 8192], default = 8192 }",
                "ramp = \"5s\"\nwindow = \"20s\"\ncertify_window = \"35s\"",
            ],
        ),
        surface(
            "cpu-quiet",
            "vllm-cpu-small",
            (15.0, 25.0),
            uneven,
            [
                "ttft_p99 = \"300ms\"\ntpot_p99 = \"15ms\"",
                "kind = \"random\"\n\
                 input_tokens = { distribution = \"uniform\", min = 180, max = 332 }\n\
                 output_tokens = { distribution = \"uniform\", min = 22, max = 42 }",
                "max-num-seqs = { values = [4, 8, 16, 32, 64, 128], default = 128 }\n\
                 max-num-batched-tokens = { values = [256, 512, 1024, 2048], default = 2048 }",
                "ramp = \"2s\"\nwindow = \"8s\"\ncertify_window = \"25s\"",
            ],
        ),
    ]
}
