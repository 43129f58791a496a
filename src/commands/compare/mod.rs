//! `autotune compare`: two sides under the same load, sweep by sweep, and one answer.

mod order;
mod parts;
mod require;
mod side;
mod site;
mod sweeps;
mod vary;

use std::path::Path;

use super::bench::check_rates;
use super::{Failed, complain, exit, print};
use crate::cli::CompareArgs;
use crate::report::bench::{Offered, Status};
use crate::report::comparison::{Comparison, Equality, Seen, compared, tsv};
use crate::report::{comparison_page, pretty_json, replace};
use crate::units::Rate;

pub(super) use side::{Side, of_run, traffic_of};
pub(super) use sweeps::{Measured, sweeps};

/// Measures every level on both sides, shows and keeps what came of them, and returns the exit code.
pub(super) fn compare(args: &CompareArgs) -> Result<u8, Failed> {
    let sides = side::both(args)?;
    let requirements = require::all(args, &sides)?;
    let levels = levels(args)?;
    let mut load = args.sweeps.load.clone();
    let traffic = traffic_of(&mut load, &sides, !args.users.is_empty())?;
    if traffic.limits().is_empty() {
        return Err(Failed::usage("error: compare needs limits, such as --slo ttft_p95=400ms"));
    }
    let Measured { seconds, sides, windows, ended, warnings, sent_again } =
        sweeps(&args.sweeps, &load, &traffic, &levels, &sides, &requirements, "compare.json")?;
    let Ok(sides) = <[_; 2]>::try_from(sides) else { return ended.map(|()| exit::FAILED) };
    let mut comparison = Comparison::of(Seen {
        workload: traffic.described.clone(),
        seed: load.seed,
        seconds,
        limits: traffic.limits().to_vec(),
        levels,
        sides,
        windows,
        equal_within: args.equal_within,
        sent_again,
    });
    comparison.warnings.extend(warnings);
    let json = pretty_json(&comparison);
    if let Some(out) = &args.sweeps.out {
        write(out, "compare.json", &json)?;
        write(out, "compare.tsv", &tsv(&comparison))?;
        write(out, "report.html", &comparison_page(&comparison))?;
    }
    print(&if args.sweeps.json { json } else { compared(&comparison) })?;
    if let Some(out) = args.sweeps.out.as_ref().filter(|_| !args.sweeps.quiet) {
        complain(&format!("results: {} (report.html, compare.json, compare.tsv)", out.display()));
    }
    ended.map(|()| code(&comparison))
}

pub(super) fn write(folder: &Path, name: &str, text: &str) -> Result<(), Failed> {
    replace(&folder.join(name), text.as_bytes()).map_err(|e| Failed::own(format!("error: {e}")))
}

/// What the flags ask for, from the lightest to the heaviest.
fn levels(args: &CompareArgs) -> Result<Vec<Offered>, Failed> {
    check_rates(&args.rates)?;
    let users = args.users.iter().map(|users| Offered::Users(*users));
    let mut levels: Vec<Offered> = users.chain(args.rates.iter().map(|rate| Offered::Rate(Rate(*rate)))).collect();
    levels.sort_by(|a, b| a.size().unwrap_or(0.0).total_cmp(&b.size().unwrap_or(0.0)));
    levels.dedup();
    Ok(levels)
}

/// All failed; or by what was asked: B is worse, or the difference is not known.
fn code(comparison: &Comparison) -> u8 {
    let nothing = |status: Status| comparison.answers.iter().all(|answer| answer.status == status);
    match comparison.equality {
        _ if comparison.levels.iter().flat_map(|l| &l.sides).all(|cell| cell.completed == 0) => exit::FAILED,
        Some(Equality::Worse) => exit::NOT_REACHABLE,
        Some(Equality::Same | Equality::SameOrBetter) => exit::FOUND,
        None if nothing(Status::NothingKept) => exit::NOT_REACHABLE,
        None if comparison.difference.is_some() => exit::FOUND,
        Some(Equality::Unknown) | None => exit::UNCERTIFIED,
    }
}
