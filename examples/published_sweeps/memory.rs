//! KV tokens: what the profile's memory model says, and what one says that never saw the configurations held out.

use autotune::twin::{Memory, Profile};

use crate::measured::Configuration;

pub fn table(configurations: &[Configuration], profile: &Profile) {
    let blind = Profile { memory: without_held_out(configurations, profile.memory), ..profile.clone() };
    println!("\nKV tokens                logged   profile   error   fitted without the held-out   error");
    let (mut worst, mut worst_blind) = (0.0_f64, 0.0_f64);
    for c in configurations {
        let tokens = |p: &Profile| p.limits(c.share, c.max_num_seqs, c.max_num_batched_tokens).unwrap().kv_tokens();
        let error = |tokens: u64| (tokens as f64 / f64::from(c.kv_tokens) - 1.0) * 100.0;
        let (ours, unseen) = (tokens(profile), tokens(&blind));
        worst = worst.max(error(ours).abs());
        worst_blind = worst_blind.max(error(unseen).abs());
        println!(
            "{:15} {:8} {:>8} {ours:>9} {:>+5.2} % {unseen:>29} {:>+5.2} %",
            c.name,
            if c.held_out { "held out" } else { "" },
            c.kv_tokens,
            error(ours),
            error(unseen),
        );
    }
    println!(
        "KV tokens within 1 %: the profile, whose memory was fitted to all of them: worst {worst:.2} %, {}",
        met(worst)
    );
    println!("                      fitted without the held-out: worst {worst_blind:.2} %, {}", met(worst_blind));
}

fn met(worst: f64) -> &'static str {
    if worst <= 1.0 { "target met" } else { "target missed" }
}

/// The model with what five servers say: 1,024 sequences give the sampler's peak, 128 sequences that of the activations. Two numbers
/// say no more than a line through zero for the activations: nothing fixed, nothing that grows faster than the budget.
fn without_held_out(configurations: &[Configuration], memory: Memory) -> Memory {
    let seen = |sequences: u32| {
        let some = configurations.iter().filter(|c| !c.held_out && c.max_num_seqs == sequences);
        let beside = some.map(|c| {
            let cache = u64::from(c.kv_tokens) * memory.per_kv_token;
            memory.total as f64 * c.share - (memory.weights + cache) as f64
        });
        let (sum, count) = beside.fold((0.0, 0.0), |(sum, count), bytes| (sum + bytes, count + 1.0));
        sum / count
    };
    Memory {
        fixed: 0,
        activation_per_batched_token: (seen(128) / 8192.0) as u64,
        activation_per_batched_token_squared: 0.0,
        profiled_sampler_per_sequence: (seen(1024) / 1024.0) as u64,
        ..memory
    }
}
