//! One rehearsed session, step by step: what `autotune rehearse` does many times without a word.
//!
//!     cargo run --release --example rehearsed_session -- SPACE PROFILE [SEED]
#![expect(clippy::unwrap_used, reason = "an example ends at the first thing that is wrong")]

use autotune::journal::Journal;
use autotune::progress::Plain;
use autotune::rig::SimulatedRig;
use autotune::settings::parse;
use autotune::tune::{Bench, Session};
use autotune::twin::Profile;
use autotune::workload::{Corpus, Material, Vocabulary};
use futures_util::FutureExt;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let plan = parse(&arguments[0], &std::fs::read_to_string(&arguments[0]).unwrap()).unwrap();
    let profile = Profile::find(&arguments[1]).unwrap();
    let seed = arguments.get(2).map_or(1, |seed| seed.parse().unwrap());
    let material = Material { corpus: Corpus::default(), vocabulary: Vocabulary::default() };
    let rig = SimulatedRig::new(plan.clone(), profile, seed, material);
    let bench = Bench::new(rig, &plan, seed, &Plain, None, Journal::default());
    Session::new(bench, &plan, &Plain).run().now_or_never().unwrap().unwrap();
}
