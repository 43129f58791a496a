//! `autotune bench`: load on a server that already runs, at one level or up a ladder.

mod find;
mod ladder;
mod results;

pub(super) use ladder::check_rates;

use std::io::IsTerminal;
use std::sync::Arc;

use super::load::{Levels, Ran, Traffic, access, interrupts, reach};
use super::stop::Stop;
use super::{Failed, complain, exit, print, runtime, sink};
use crate::cli::{BenchArgs, Sought, colour};
use crate::progress::{Event, Sink};
use crate::report::bench::{Finding, Ladder, Status, Summary, block, found, table, vllm_keys};
use crate::report::pretty_json;
use find::Finder;
use results::Folder;

/// Runs every level, shows and keeps what came of them, and returns the exit code.
pub(super) fn bench(args: &BenchArgs) -> Result<u8, Failed> {
    let traffic = traffic(args)?;
    let offered = ladder::offered(args, &traffic)?;
    let sought = args.find.map(|sought| Ok::<_, Failed>((sought, find::range(args, sought)?))).transpose()?;
    if sought.is_some() && traffic.limits().is_empty() {
        return Err(Failed::usage("error: --find needs limits, such as --slo ttft_p95=400ms"));
    }
    let access = access(&args.access)?;
    let mut folder = args.out.as_deref().map(Folder::open).transpose()?;
    let sink: Arc<dyn Sink> = Arc::from(sink(args.quiet, false, None));
    let (mut measured, mut finder) = (Vec::new(), None);
    // What was measured before something went wrong is shown and kept all the same.
    let ended = runtime()?.block_on(async {
        let mut stop = Stop::listen().map_err(|e| Failed::own(format!("error: failed to listen for signals: {e}")))?;
        let server = tokio::select! {
            server = reach(&args.url, &args.access, &access, &args.load, &traffic, None, &*sink) => server?,
            () = stop.told() => return Err(interrupts::before_anything()),
        };
        let mut levels = Levels::new(&args.load, &traffic, server, args.label.clone(), sink.clone(), stop);
        if let Some(sought) = sought {
            let Some(warmed) = levels.warm().await? else { return Err(interrupts::before_anything()) };
            finder = Some(Finder::new(args, &traffic, sought, warmed, levels.mean_output_tokens()));
        }
        let mut offered = offered.into_iter();
        loop {
            let load = match &mut finder {
                Some(finder) => finder.next()?,
                None => offered.next().map(|offered| ladder::load(args, &traffic, measured.len(), offered)),
            };
            let Some(load) = load else { return Ok(()) };
            let Ran { level, interrupted } = levels.run(measured.len(), load).await?;
            if let Some(level) = level {
                let summary = Summary::of(&level);
                if let Some(finder) = &mut finder {
                    sink.take(&Event::Note(&finder.told(&level, &summary)));
                }
                // First into memory: a full disk must not take it from the table.
                measured.push((level, summary));
                if let (Some(folder), Some((level, summary))) = (&mut folder, measured.last()) {
                    folder.keep(level, summary)?;
                }
            }
            if interrupted {
                return Err(interrupts::before_the_end());
            }
        }
    });
    drop(sink);
    let Some((first, _)) = measured.first() else { return ended.map(|()| exit::USAGE) };
    if let Some(finding) = finder.as_ref().and_then(|finder| finder.finding(&measured)) {
        let json = pretty_json(&finding);
        if let Some(folder) = folder.as_ref() {
            folder.write("find.json", json.as_bytes())?;
        }
        print(&if args.json { json } else { coloured(&found(&finding)) })?;
        say_where(folder, args);
        return ended.map(|()| code_of_finding(&finding));
    }
    let meta = first.meta.clone();
    let ladder = Ladder::of(meta.clone(), measured.iter().map(|(_, summary)| summary.clone()).collect());
    let json = pretty_json(&ladder);
    if let Some(folder) = &folder {
        folder.write("ladder.json", json.as_bytes())?;
    }
    print(&match (args.json, measured.as_slice()) {
        (true, [(level, summary)]) => format!("{:#}\n", vllm_keys(level, summary)),
        (true, _) => json,
        (false, [(_, summary)]) => coloured(&block(&meta, summary)),
        (false, _) => coloured(&table(&ladder)),
    })?;
    say_where(folder, args);
    ended.map(|()| code(&ladder))
}

fn coloured(report: &str) -> String {
    colour(std::io::stdout().is_terminal()).report(report)
}

fn say_where(folder: Option<Folder>, args: &BenchArgs) {
    if let Some(folder) = folder.filter(|_| !args.quiet) {
        complain(&folder.says());
    }
}

/// Every limit was found, none is kept at all, or something is not known.
fn code_of_finding(finding: &Finding) -> u8 {
    if finding.levels.iter().all(|level| level.completed == 0 && level.failed > 0) {
        exit::FAILED
    } else if finding.answers.iter().all(|answer| answer.status == Status::Found) {
        exit::FOUND
    } else if finding.answers.iter().all(|answer| answer.status == Status::NothingKept) {
        exit::NOT_REACHABLE
    } else {
        exit::UNCERTIFIED
    }
}

/// All failed, or no level as promised: a script must see it.
fn code(ladder: &Ladder) -> u8 {
    if ladder.levels.iter().all(|level| level.completed == 0) {
        exit::FAILED
    } else if ladder.has_promises() && ladder.levels.iter().all(|level| level.standing.held() != Some(true)) {
        exit::NOT_REACHABLE
    } else {
        exit::FOUND
    }
}

/// What the flags ask and promise.
pub(super) fn traffic(args: &BenchArgs) -> Result<Traffic, Failed> {
    let closed = !args.concurrency.is_empty() || args.at_once.is_some() || args.find == Some(Sought::Users);
    Traffic::of(&args.load, closed, args.find.is_some())
}
