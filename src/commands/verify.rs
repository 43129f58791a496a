//! `autotune verify`: one engine against its own earlier outcome.

use std::path::Path;

use super::bench::check_rates;
use super::compare::{Measured, Side, of_run, sweeps, traffic_of, write};
use super::export::read_outcome;
use super::{Failed, complain, exit, print};
use crate::cli::VerifyArgs;
use crate::report::bench::Offered;
use crate::report::comparison::{Earlier, Equality, Verified};
use crate::report::pretty_json;
use crate::units::Rate;

/// The rates that are measured, by the earlier limit.
const AROUND: [f64; 5] = [0.8, 0.9, 1.0, 1.1, 1.25];
/// The standard error of an earlier limit whose own is not told.
const UNKNOWN_ERROR: f64 = 0.05;

pub(super) fn verify(args: &VerifyArgs) -> Result<u8, Failed> {
    let (outcome, _) = read_outcome(&args.against)?;
    let folder = match args.against.parent() {
        _ if args.against.is_dir() => args.against.as_path(),
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let limit = outcome.best.as_ref().and_then(|best| Some((best.limit.or(best.certified_rate)?, best.limit_error)));
    let Some((limit, error)) = limit else {
        return Err(Failed::usage(format!(
            "error: {} has no limit to verify: its run found no point that keeps the promises",
            args.against.display()
        )));
    };
    let mut load = args.sweeps.load.clone();
    if load.think.is_some() {
        return Err(Failed::usage("error: --think is of users who wait for answers, and verify sends rates"));
    }
    if load.traffic.slo.is_empty() {
        load.traffic.slo = outcome.limits.iter().map(|(key, at_most)| format!("{key}={}s", at_most.0)).collect();
    }
    // The traffic is the run's own, whoever serves it.
    let launched = (args.url.is_none() || load.workload.is_none()).then(|| of_run(folder, outcome)).transpose()?;
    let launched = launched.map(|engine| Side::Engine(Box::new(engine)));
    let traffic = traffic_of(&mut load, launched.as_slice(), false)?;
    let side = match (&args.url, launched) {
        (Some(url), _) => Side::Url(url.clone()),
        (None, Some(side)) => side,
        (None, None) => return Err(Failed::usage("error: there is nothing to verify")),
    };
    check_rates(&args.rates)?;
    let mut rates = args.rates.clone();
    if rates.is_empty() {
        rates = AROUND.map(|share| (limit * share).rounded().0).to_vec();
    }
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    let levels: Vec<Offered> = rates.into_iter().map(|rate| Offered::Rate(Rate(rate))).collect();
    let Measured { seconds, mut sides, windows, ended, warnings, sent_again } =
        sweeps(&args.sweeps, &load, &traffic, &levels, &[side], &[], "verify.json")?;
    let Some(side) = sides.pop() else { return ended.map(|()| exit::FAILED) };
    let earlier = Earlier { limit, error: error.unwrap_or(UNKNOWN_ERROR) };
    let about = (traffic.described.clone(), load.seed, seconds);
    let mut verified = Verified::of(about, traffic.limits(), (side, &windows), earlier, args.equal_within);
    verified.warnings.extend(warnings.into_iter().chain(sent_again));
    let json = pretty_json(&verified);
    if let Some(out) = &args.sweeps.out {
        write(out, "verify.json", &json)?;
    }
    print(&if args.sweeps.json { json } else { verified.text() })?;
    if let Some(out) = args.sweeps.out.as_ref().filter(|_| !args.sweeps.quiet) {
        complain(&format!("results: {} (verify.json)", out.display()));
    }
    ended.map(|()| match verified.equality {
        _ if verified.levels.iter().all(|(_, cell)| cell.completed == 0) => exit::FAILED,
        Equality::Same | Equality::SameOrBetter => exit::FOUND,
        Equality::Worse => exit::NOT_REACHABLE,
        Equality::Unknown => exit::UNCERTIFIED,
    })
}
