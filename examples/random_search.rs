//! The program with another search: points drawn at random, each raced as those of `bisect`. Every option of `autotune` works.
//!
//!     cargo run --release --example random_search -- --space search-spaces/vllm-cpu.toml --strategy bisect --budget 10m --out run
//!
//! `[probe] twin = false` in the space file turns the twin off as well.

#[path = "../lab/strategies.rs"]
mod strategies;

fn main() -> std::process::ExitCode {
    autotune::commands::main_with(strategies::random).into()
}
