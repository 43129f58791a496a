//! Load on a server: what `bench` and `compare` share, from the flags to one level that was driven and judged.

pub(super) mod interrupts;
mod levels;
mod seen;
mod tally;
mod traffic;

use std::path::Path;

use super::Failed;
use crate::access::{Access, plain_address};
use crate::cli::{AccessArgs, LoadArgs};
use crate::endpoints::Endpoints;
use crate::engine::dialect;
use crate::load::{Client, Target};
use crate::private::create_folder;
use crate::progress::{Event, Sink};
use crate::rig::{NoAnswer, Server};
use crate::settings::{EngineKind, Secrets};

pub(super) use levels::{CERTAINTY, Levels, Load, Ran};
pub(super) use seen::seen;
pub(super) use traffic::{Traffic, written};

/// How the flags say that servers are spoken to.
pub(super) fn access(args: &AccessArgs) -> Result<Access, Failed> {
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

/// Finds the model, learns the server's words and warms it up. An engine that was `launched` is asked as its own kind is.
pub(super) async fn reach(
    url: &str,
    args: &AccessArgs,
    access: &Access,
    load: &LoadArgs,
    traffic: &Traffic,
    launched: Option<Endpoints>,
    sink: &dyn Sink,
) -> Result<Server, Failed> {
    let usage = |e: &dyn std::fmt::Display| Failed::usage(format!("error: {e}"));
    let base_url = url.trim_end_matches('/').trim_end_matches("/v1").to_owned();
    plain_address(&base_url).map_err(|e| usage(&e))?;
    // A server that runs is asked in the words of vLLM, which the others understand in part.
    let asked = || Endpoints::new(base_url.clone(), access, dialect(EngineKind::Vllm)).map_err(|e| usage(&e));
    let endpoints = launched.map_or_else(asked, Ok)?;
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
        Server::learn(endpoints, client, workload, traffic.corpus.clone(), load.seed, levels::STALL_TIMEOUT).await;
    Ok(server.with_at_most(load.max_concurrency))
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
            "its certificate is not trusted here: --ca-cert FILE gives one, or --insecure".to_owned()
        }
        () => "is the server up and the address right?".to_owned(),
    };
    // Of the layers of a failed connection, the lowest says what happened.
    let why = if why.contains("(Connect)") { why.rsplit(": ").next().unwrap_or(why) } else { why };
    Failed::own(format!("error: failed to ask {base_url} for its model: {why}; {remedy}"))
}

/// What went wrong with the server itself.
fn unanswered(url: &str, why: &NoAnswer) -> Failed {
    Failed::own(format!("error: failed to load {url}: {why}"))
}

/// Makes a folder for results before the first request, so that a long run cannot fail at its end. One that holds results is refused.
pub(super) fn fresh_folder(path: &Path, results: &[&str], of: &str) -> Result<(), Failed> {
    if results.iter().any(|name| path.join(name).exists()) {
        let says = format!("error: {} holds the results of an earlier {of}; name another --out", path.display());
        return Err(Failed::usage(says));
    }
    let made = create_folder(path).and_then(|()| tempfile::tempfile_in(path).map(drop));
    made.map_err(|e| Failed::usage(format!("error: failed to write to {}: {e}", path.display())))
}
