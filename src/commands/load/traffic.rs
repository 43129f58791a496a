//! The traffic and the promises of a benchmark, from its flags. The flags are written as a `[workload]` section and read as a space file, so there
//! is one grammar and one kind of error.

use std::fmt::Write;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use super::super::Failed;
use crate::cli::{LoadArgs, TrafficArgs};
use crate::journal::Header;
use crate::settings::{self, Limit, WorkloadPlan};
use crate::workload::Corpus;

pub(in crate::commands) struct Traffic {
    pub(in crate::commands) workload: WorkloadPlan,
    /// Sets of promises, from the tightest to the loosest: one, or with `--find` one for each limit of a key that has several.
    pub(in crate::commands) targets: Vec<Vec<Limit>>,
    pub(in crate::commands) corpus: Corpus,
    /// The workload in words.
    pub(in crate::commands) described: String,
}

impl Traffic {
    /// `closed` says whether users wait for answers, and `curve` whether a key may have several limits.
    pub(in crate::commands) fn of(args: &LoadArgs, closed: bool, curve: bool) -> Result<Self, Failed> {
        let usage = |e: &dyn std::fmt::Display| Failed::usage(format!("error: {e}"));
        let (name, text, base) = match &args.workload {
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|e| usage(&format!("failed to read {}: {e}", path.display())))?;
                (path.display().to_string(), text, path.parent().unwrap_or(Path::new("")).to_owned())
            }
            None => {
                let arrives = |w: &&String| w.starts_with("arrivals") || w.starts_with("burstiness");
                if let Some(with) = args.traffic.with.iter().find(arrives).filter(|_| closed) {
                    return Err(usage(&format!("--with {with} says how requests arrive at --rate or --rates")));
                }
                ("the workload of these flags".to_owned(), written(&args.traffic)?, std::path::PathBuf::new())
            }
        };
        let (workload, promised) = settings::traffic(&name, &text).map_err(|e| Failed::usage(e.render()))?;
        let targets = match args.traffic.promises() {
            Some(slo) if curve => targets(&slo),
            Some(slo) => settings::limits(&slo).map(|limits| vec![limits]),
            None => Ok(vec![promised]),
        };
        let targets = targets.map_err(|e| usage(&format!("--slo: {e}")))?;
        let corpus = Corpus::read(&workload, &base).map_err(|e| usage(&e))?;
        let described = match &args.workload {
            Some(path) => format!("[workload] of {}", path.display()),
            None => text.lines().skip(1).collect::<Vec<_>>().join(", "),
        };
        Ok(Self { workload, targets, corpus, described })
    }

    /// That of a run, as its journal has it: the space file may have changed since. Files of prompts must still be what they were.
    pub(in crate::commands) fn of_run(args: &LoadArgs, header: &Header, folder: &Path) -> Result<Self, Failed> {
        let usage = |e: &dyn std::fmt::Display| Failed::usage(format!("error: {e}"));
        let limits = match args.traffic.promises() {
            Some(slo) => settings::limits(&slo).map_err(|e| usage(&format!("--slo: {e}")))?,
            None => header.plan.slo.clone(),
        };
        let workload = header.plan.workload.clone();
        let base = Path::new(&header.space_file).parent().unwrap_or(Path::new(""));
        let corpus = Corpus::read(&workload, base).map_err(|e| usage(&e))?;
        if corpus.digest() != header.workload_digest {
            return Err(usage(&format!(
                "the file of prompts is another one than in the run of {}; --workload or --dataset names the one to send",
                folder.display()
            )));
        }
        let described = format!("that of the run in {}", folder.display());
        Ok(Self { workload, targets: vec![limits], corpus, described })
    }

    /// The promises that levels are judged by: the loosest, where there are several sets.
    pub(in crate::commands) fn limits(&self) -> &[Limit] {
        self.targets.last().map_or(&[], Vec::as_slice)
    }
}

/// The sets of promises that a curve is made of.
fn targets(slo: &str) -> Result<Vec<Vec<Limit>>, String> {
    let lists = settings::limit_lists(slo)?;
    let mut several = lists.iter().filter(|list| list.len() > 1).map(|list| list[0].key());
    if let (Some(one), Some(other)) = (several.next(), several.next()) {
        return Err(format!("`{one}` and `{other}` have several limits each: a curve takes several of one key"));
    }
    let most = lists.iter().map(Vec::len).max().unwrap_or(1);
    let of = |list: &Vec<Limit>, place: usize| list[place.min(list.len() - 1)].clone();
    Ok((0..most).map(|place| lists.iter().map(|list| of(list, place)).collect()).collect())
}

/// The `[workload]` that the flags stand for.
pub(in crate::commands) fn written(args: &TrafficArgs) -> Result<String, Failed> {
    let mut text = "[workload]\n".to_owned();
    let mut key = |name: &str, value: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name} = {value}");
    };
    let given = |name: &str| args.with.iter().any(|w| w.split('=').next().is_some_and(|k| k.trim() == name));
    match &args.dataset {
        Some(path) => {
            if !given("kind") {
                key("kind", &format!("{:?}", kind_of(path)?));
            }
            key("file", &format!("{:?}", path.display().to_string()));
        }
        None => {
            if !given("kind") {
                key("kind", "\"random\"");
            }
            if !given("kind") || args.input_tokens.is_some() {
                key("input_tokens", &lengths(args.input_tokens.as_deref().unwrap_or("512")));
            }
        }
    }
    if args.output_tokens.is_some() || (args.dataset.is_none() && !given("kind")) {
        key("output_tokens", &lengths(args.output_tokens.as_deref().unwrap_or("128")));
    }
    if args.chat {
        key("endpoint", "\"chat\"");
    }
    for with in &args.with {
        let Some((name, value)) = with.split_once('=') else {
            return Err(Failed::usage(format!("error: --with {with}: write KEY=VALUE, such as arrivals=gamma")));
        };
        let (name, value) = (name.trim(), value.trim());
        // A bare word is a string: nobody likes to quote for the shell and for TOML.
        let bare = value.starts_with(|c: char| c.is_ascii_alphabetic() || "./~".contains(c))
            && !matches!(value, "true" | "false");
        if bare { key(name, &format!("{value:?}")) } else { key(name, value) }
    }
    Ok(text)
}

/// `100-200` as a uniform distribution; anything else as it stands.
fn lengths(text: &str) -> String {
    match text.split_once('-').map(|(min, max)| (min.trim().parse::<u32>(), max.trim().parse::<u32>())) {
        Some((Ok(min), Ok(max))) => format!("{{ distribution = \"uniform\", min = {min}, max = {max} }}"),
        _ => text.to_owned(),
    }
}

/// A file's kind by its first line: everybody has files of these three forms, and nobody names their form.
fn kind_of(path: &Path) -> Result<&'static str, Failed> {
    let read = || {
        let mut first = Vec::new();
        BufReader::new(std::fs::File::open(path)?.take(FIRST)).read_until(b'\n', &mut first)?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&first).into_owned())
    };
    let first =
        read().map_err(|e| Failed::usage(format!("error: failed to read the dataset {}: {e}", path.display())))?;
    Ok(match first.trim_start() {
        line if line.starts_with('[') => "sharegpt",
        line if line.contains("\"input_length\"") => "trace",
        _ => "jsonl",
    })
}

/// The longest beginning of a first line that is looked at: a ShareGPT file may be one line of a gigabyte.
const FIRST: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::super::bench::traffic as of_bench;
    use super::*;
    use crate::cli::{Cli, Command};

    fn traffic(flags: &str) -> Result<Traffic, String> {
        let words = ["autotune", "bench", "--url", "http://127.0.0.1:1"].into_iter().chain(flags.split_whitespace());
        let Some(Command::Bench(args)) = Cli::try_parse_from(words).unwrap().command else { panic!("it is a bench") };
        of_bench(&args).map_err(|failed| failed.message)
    }

    #[test]
    fn flags_stand_for_a_workload() {
        let described = |flags| traffic(flags).unwrap().described;
        assert_eq!(described(""), "kind = \"random\", input_tokens = 512, output_tokens = 128");
        assert_eq!(
            described("--input-tokens 10-20 --output-tokens 5 --chat --with arrivals=gamma --with burstiness=0.5"),
            "kind = \"random\", input_tokens = { distribution = \"uniform\", min = 10, max = 20 }, output_tokens = 5, \
             endpoint = \"chat\", arrivals = \"gamma\", burstiness = 0.5"
        );
    }

    #[test]
    fn datasets_are_known_by_their_first_line() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).unwrap();
            format!("--dataset {}", folder.path().join(name).display())
        };
        let kind = |flags: &str| traffic(flags).unwrap().described.split(',').next().unwrap().to_owned();
        let share = "[{\"conversations\": [{\"from\": \"human\", \"value\": \"a question\"}, {\"from\": \"gpt\", \"value\": \"an answer\"}]}]";
        assert_eq!(kind(&write("a.json", share)), "kind = \"sharegpt\"");
        assert_eq!(kind(&write("b.jsonl", "{\"prompt\": \"hello\", \"output_tokens\": 4}\n")), "kind = \"jsonl\"");
        let trace = "{\"timestamp\": 0, \"input_length\": 9, \"output_length\": 3, \"hash_ids\": [1]}\n";
        assert_eq!(kind(&write("c.jsonl", trace)), "kind = \"trace\"");
    }

    #[test]
    fn more_requests_at_once_than_memory_holds_are_refused() {
        for (flag, value, most) in [
            ("--at-once", "4000000000", "1000000"),
            ("--at-once", "0", "1000000"),
            ("--concurrency", "4000000000", "100000"),
            ("--concurrency", "1,100001", "100000"),
        ] {
            let words = ["autotune", "bench", "--url", "http://127.0.0.1:1", flag, value];
            let says = Cli::try_parse_from(words).unwrap_err().to_string();
            assert!(says.contains(flag) && says.contains(&format!("1..={most}")), "{says}");
        }
    }

    #[test]
    fn mistakes_name_their_place_and_the_remedy() {
        for (flags, parts) in [
            ("--with arrivals=gama", vec!["gama", "gamma"]),
            ("--concurrency 4 --with arrivals=gamma", vec!["arrivals", "--rate"]),
            ("--with nonsense", vec!["KEY=VALUE"]),
            ("--input-tokens 4000000000", vec!["input_tokens", "10000000"]),
            ("--with shared_prefix_tokens=4000000000", vec!["shared_prefix_tokens", "10000000"]),
            ("--input-tokens many", vec!["input_tokens = many"]),
            ("--slo ttft=5", vec!["--slo", "ttft_p99"]),
            ("--rate 1 --slo ttft_p99=1s,2s", vec!["several limits", "--find"]),
            ("--find users --slo ttft_p99=1s,2s --slo tpot_p99=10ms,20ms", vec!["ttft_p99", "tpot_p99", "one key"]),
            ("--find users --slo ttft_p99=1s --with arrivals=gamma", vec!["arrivals", "--rate"]),
            ("--dataset /nowhere/at.all", vec!["/nowhere/at.all"]),
        ] {
            let message = traffic(flags).err().unwrap();
            assert!(parts.iter().all(|part| message.contains(part)), "{flags}: {message}");
        }
    }
}
