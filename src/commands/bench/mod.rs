//! `autotune bench`: load on a server that already runs, at one level or up a ladder.

mod find;
mod interrupts;
mod levels;
mod results;
mod tally;
mod traffic;

pub(super) use traffic::written;

use std::sync::Arc;

use super::stop::Stop;
use super::{Failed, complain, exit, print, runtime, sink};
use crate::access::{Access, plain_address};
use crate::cli::BenchArgs;
use crate::engine::{Endpoints, dialect};
use crate::load::{Client, Target};
use crate::progress::{Event, Sink};
use crate::report::bench::{Finding, Ladder, Status, Summary, block, found, table, vllm_keys};
use crate::rig::Server;
use crate::settings::{EngineKind, Secrets};
use find::Finder;
use levels::{Levels, Ran};
use results::Folder;
use traffic::Traffic;

/// Runs every level, shows and keeps what came of them, and returns the exit code.
pub(super) fn bench(args: &BenchArgs) -> Result<u8, Failed> {
    let traffic = Traffic::of(args)?;
    let offered = levels::offered(args, &traffic)?;
    let sought = args.find.map(|sought| Ok::<_, Failed>((sought, find::range(args, sought)?))).transpose()?;
    if sought.is_some() && traffic.limits().is_empty() {
        return Err(Failed::usage("error: --find needs limits, such as --slo ttft_p95=400ms"));
    }
    let access = access(args)?;
    let mut folder = args.out.as_deref().map(Folder::open).transpose()?;
    let sink: Arc<dyn Sink> = Arc::from(sink(args.quiet, false));
    let (mut measured, mut finder) = (Vec::new(), None);
    // What was measured before something went wrong is shown and kept all the same.
    let ended = runtime()?.block_on(async {
        let mut stop = Stop::listen().map_err(|e| Failed::own(format!("error: failed to listen for signals: {e}")))?;
        let server = tokio::select! {
            server = reach(args, &access, &traffic, &*sink) => server?,
            () = stop.told() => return Err(interrupts::before_anything()),
        };
        let mut levels = Levels::new(args, &traffic, server, sink.clone(), stop);
        if let Some(sought) = sought {
            let Some(warmed) = levels.warm().await? else { return Err(interrupts::before_anything()) };
            finder = Some(Finder::new(args, &traffic, sought, warmed, levels.mean_output_tokens()));
        }
        let mut ladder = offered.into_iter();
        loop {
            let load = match &mut finder {
                Some(finder) => finder.next()?,
                None => ladder.next().map(|offered| levels.load(offered)),
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
        let json = finding.json().map_err(Failed::own)?;
        if let Some(folder) = folder.as_ref() {
            folder.write("find.json", json.as_bytes())?;
        }
        print(&if args.json { json } else { found(&finding) })?;
        say_where(folder, args);
        return ended.map(|()| code_of_finding(&finding));
    }
    let meta = first.meta.clone();
    let ladder = Ladder::of(meta.clone(), measured.iter().map(|(_, summary)| summary.clone()).collect());
    let json = ladder.json().map_err(Failed::own)?;
    if let Some(folder) = &folder {
        folder.write("ladder.json", json.as_bytes())?;
    }
    print(&match (args.json, measured.as_slice()) {
        (true, [(level, summary)]) => format!("{:#}\n", vllm_keys(level, summary)),
        (true, _) => json,
        (false, [(_, summary)]) => block(&meta, summary),
        (false, _) => table(&ladder),
    })?;
    say_where(folder, args);
    ended.map(|()| code(&ladder))
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

fn access(args: &BenchArgs) -> Result<Access, Failed> {
    let header = |text: &String| match text.split_once(':') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.trim().to_owned())),
        // Its text is not repeated: it may be a key.
        _ => Err(Failed::usage("error: --header takes NAME: VALUE, with the colon")),
    };
    let headers = args.header.iter().map(header).collect::<Result<_, Failed>>()?;
    let (api_key, ca_file) = (args.api_key.clone(), args.ca_cert.clone());
    let body = args.extra_body.clone().map(|body| (String::new(), body));
    Ok(Access { api_key, headers, ca_file, insecure: args.insecure, hidden: Secrets::of_variables(body) })
}

/// Finds the model, learns the server's words and warms it up.
async fn reach(args: &BenchArgs, access: &Access, traffic: &Traffic, sink: &dyn Sink) -> Result<Server, Failed> {
    let usage = |e: &dyn std::fmt::Display| Failed::usage(format!("error: {e}"));
    let base_url = args.url.trim_end_matches('/').trim_end_matches("/v1").to_owned();
    plain_address(&base_url).map_err(|e| usage(&e))?;
    let endpoints = Endpoints::new(base_url.clone(), access, dialect(EngineKind::Vllm)).map_err(|e| usage(&e))?;
    let model = match &args.model {
        Some(model) => model.clone(),
        None => {
            endpoints.model().await.map_err(|why| no_model(&base_url, &why, "--api-key or --header gives its key"))?
        }
    };
    let extra_body = match args.extra_body.as_deref().map(serde_json::from_str) {
        None => serde_json::Map::new(),
        Some(Ok(serde_json::Value::Object(fields))) => fields,
        Some(_) => return Err(Failed::usage("error: --extra-body is no JSON object, such as '{\"top_p\": 0.9}'")),
    };
    let workload = traffic.workload.clone();
    let target = Target {
        base_url,
        model,
        endpoint: workload.endpoint,
        ignore_eos: workload.ignore_eos,
        access: access.clone(),
        extra_body,
    };
    let client = Client::new(target).map_err(|e| usage(&e))?;
    if let Some(says) = super::corpus_says(&workload, &traffic.corpus) {
        sink.take(&Event::Note(&says));
    }
    sink.take(&Event::Note("warming up"));
    let server =
        Server::learn(endpoints, client, workload, traffic.corpus.clone(), args.seed, levels::STALL_TIMEOUT).await;
    Ok(server.with_at_most(args.max_concurrency))
}

/// Why a server does not tell its model, and what to do: `of_key` says how its key is given.
pub(super) fn no_model(base_url: &str, why: &str, of_key: &str) -> Failed {
    let has = |parts: &[&str]| parts.iter().any(|part| why.contains(part));
    let remedy = match () {
        () if has(&["status 401", "status 403"]) => format!("the server wants a key: {of_key}"),
        () if has(&["status 404"]) => {
            "this server has no such path: is it an OpenAI-compatible one, and does the address lack a part of its path?".to_owned()
        }
        () if has(&["dns error", "failed to lookup"]) => "no host has this name: is it spelled right?".to_owned(),
        () if has(&["refused"]) => "nothing listens there: is the server up, and the port right?".to_owned(),
        () if has(&["timed out", "deadline"]) => "is the server up, and can this machine reach it?".to_owned(),
        () if has(&["certificate"]) => {
            "its certificate is not trusted here: bench takes --ca-cert FILE, or --insecure".to_owned()
        }
        () => "is the server up and the address right?".to_owned(),
    };
    Failed::own(format!("error: failed to ask {base_url} for its model: {why}; {remedy}"))
}

/// What went wrong with the server itself.
fn unanswered(url: &str, why: &str) -> Failed {
    Failed::own(format!("error: failed to load {url}: {why}"))
}
