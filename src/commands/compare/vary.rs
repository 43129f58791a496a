//! `--vary`: one space file, or one object of a cluster, under two values of a flag or a variable.

use crate::cluster::vary::Wanted;
use crate::commands::Failed;
use crate::export::flags::Setting;
use crate::settings::{Plan, flag_name, holds_secret, redact_variable, redact_words};
use crate::space::{Point, Value};

/// What is varied, with the value of A and that of B.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Vary {
    /// The component of a graph in a cluster.
    pub(super) component: Option<String>,
    what: What,
    values: [String; 2],
}

#[derive(Clone, Debug, PartialEq)]
enum What {
    /// A flag of the engine, without its dashes.
    Flag(String),
    Variable(String),
    /// A field of an object's spec.
    Field(Vec<String>),
}

impl Vary {
    /// Reads what is varied of a space file, or of an object in a cluster.
    pub(super) fn parse(text: &str, of_object: bool) -> Result<Self, Failed> {
        // Values may be secrets.
        let named = text.split('=').next().unwrap_or_default();
        let wrong = |why: &str| Failed::usage(format!("error: --vary {named}: {why}"));
        let (name, values) = text.split_once('=').ok_or_else(|| wrong("write args.FLAG=A,B or env.NAME=A,B"))?;
        let (component, name) = match name.trim().split_once(':') {
            Some((component, name)) if of_object => (Some(component.to_owned()), name),
            _ => (None, name.trim()),
        };
        let what = match name.split_once('.') {
            Some(("args", flag)) if !flag.is_empty() => What::Flag(flag_name(flag.trim_start_matches('-'))),
            Some(("env", variable)) if !variable.is_empty() => What::Variable(variable.to_owned()),
            _ if of_object && name.split('.').all(|key| !key.is_empty()) => {
                What::Field(name.split('.').map(str::to_owned).collect())
            }
            _ => {
                return Err(wrong(
                    "only args.FLAG and env.NAME of a space file can be varied; for an object of a cluster, name it, such as --deployment NAME, beside its address",
                ));
            }
        };
        match <[String; 2]>::try_from(split(values)) {
            Ok(values) if values[0] != values[1] => {
                let is_secret = |value: &String| match &what {
                    What::Flag(flag) => holds_secret(flag, value),
                    What::Variable(_) | What::Field(_) => false,
                };
                if values.iter().any(is_secret) {
                    return Err(wrong(
                        "a flag that holds a secret cannot be varied; give it to both in the space file",
                    ));
                }
                let inherited = matches!(&what, What::Variable(name) if std::env::var_os(name).is_some());
                if inherited && !of_object && values.iter().any(String::is_empty) {
                    return Err(wrong("engines inherit this variable from autotune's own environment; unset it first"));
                }
                if of_object && !matches!(what, What::Variable(_)) && values.iter().any(String::is_empty) {
                    return Err(wrong("only a variable of an object can be left out: give two values"));
                }
                Ok(Self { component, what, values })
            }
            Ok(_) => Err(wrong("its two values are the same")),
            Err(_) => Err(wrong(
                "give two values with a comma between them; commas within {}, [] and quotes belong to a value",
            )),
        }
    }

    /// The plan and the point of a side, and what it is in words.
    pub(super) fn applied(&self, plan: &Plan, side: usize) -> (Plan, Point, String) {
        let (mut plan, mut point) = (plan.clone(), plan.space.baseline());
        let value = &self.values[side];
        let words = match &self.what {
            What::Variable(name) => {
                plan.engine.env.remove(name);
                if !value.is_empty() {
                    plan.engine.env.insert(name.clone(), value.clone());
                }
                format!("{name}={}", redact_variable(name, value))
            }
            What::Flag(flag) => {
                plan.engine.args = without(&plan.engine.args, flag);
                plan.engine.command = without(&plan.engine.command, flag);
                if let Some(graph) = &mut plan.engine.graph {
                    graph.frontend_args = without(&graph.frontend_args, flag);
                }
                point.0.retain(|name, _| !is_of(name, flag));
                if !value.is_empty() {
                    point = point.with(flag, scalar(value));
                }
                redact_words(&[format!("--{flag}"), value.clone()]).join(" ")
            }
            // Only of objects.
            What::Field(_) => String::new(),
        };
        (plan, point, if value.is_empty() { format!("without {}", self.name()) } else { words })
    }

    /// What a side of an object gets, and what it is in words.
    pub(super) fn wanted(&self, side: usize) -> (Wanted, String) {
        let value = &self.values[side];
        let (wanted, words) = match &self.what {
            What::Flag(flag) => (
                Wanted::Flag(Setting { name: flag.clone(), value: scalar(value) }),
                redact_words(&[format!("--{flag}"), value.clone()]).join(" "),
            ),
            What::Variable(name) => (
                Wanted::Variable(name.clone(), (!value.is_empty()).then(|| value.clone())),
                format!("{name}={}", redact_variable(name, value)),
            ),
            What::Field(path) => (
                Wanted::Field(path.clone(), serde_json::to_value(scalar(value)).unwrap_or_default()),
                format!("{}={value}", path.join(".")),
            ),
        };
        let with = if value.is_empty() { format!("without {}", self.name()) } else { format!("with {words}") };
        let component = self.component.as_ref().map_or(String::new(), |component| format!(" in {component}"));
        (wanted, with + &component)
    }

    fn name(&self) -> &str {
        match &self.what {
            What::Flag(name) | What::Variable(name) => name,
            What::Field(path) => path.last().map_or("", String::as_str),
        }
    }

    /// What a side must show if its value is on: without it, nothing was compared.
    pub(super) fn requires(&self, side: usize) -> Option<&'static str> {
        let value = self.values[side].as_str();
        match self.name() {
            "speculative-config" if !["", "None", "none"].contains(&value) => Some("acceptance_length>1"),
            "router-mode" | "DYN_ROUTER_MODE" if value == "kv" => Some("kv_events>0"),
            _ => None,
        }
    }
}

/// At the commas outside of brackets and quotes.
fn split(text: &str) -> Vec<String> {
    let (mut values, mut depth, mut quoted) = (vec![String::new()], 0_i32, false);
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            '{' | '[' if !quoted => depth += 1,
            '}' | ']' if !quoted => depth -= 1,
            _ => {}
        }
        match values.last_mut() {
            Some(last) if c != ',' || quoted || depth > 0 => last.push(c),
            _ => values.push(String::new()),
        }
    }
    values.iter().map(|value| value.trim().to_owned()).collect()
}

/// Whether a name is that flag, or a key of its value, such as `speculative-config.method`.
fn is_of(name: &str, flag: &str) -> bool {
    name.strip_prefix(flag).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The words without a flag, its value, its keys, and its opposite.
fn without(words: &[String], flag: &str) -> Vec<String> {
    let mut left = Vec::new();
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        let (name, glued) = word.split_once('=').map_or((word.as_str(), false), |(name, _)| (name, true));
        let named = name.strip_prefix("--").map(flag_name).unwrap_or_default();
        if is_of(&named, flag) {
            if !glued && words.peek().is_some_and(|next| !next.starts_with('-') || next.parse::<f64>().is_ok()) {
                words.next();
            }
        } else if named.strip_prefix("no-") != Some(flag) {
            left.push(word.clone());
        }
    }
    left
}

/// A switch, a number, or a word.
fn scalar(text: &str) -> Value {
    match text {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ => text
            .parse()
            .map(Value::Int)
            .or_else(|_| text.parse().map(Value::Real))
            .unwrap_or_else(|_| Value::Text(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::flags;

    fn vary(text: &str) -> Result<Vary, String> {
        Vary::parse(text, false).map_err(|failed| failed.message)
    }

    #[test]
    fn a_flag_takes_two_values_and_leaves_no_other_of_its_name() {
        let mut plan = crate::settings::parse("q", include_str!("../../../search-spaces/quickstart.toml")).unwrap();
        plan.engine.args =
            ["--no-enable-prefix-caching", "--max-num-seqs=4", "--seed", "7"].map(str::to_owned).to_vec();
        let caching = vary("args.enable-prefix-caching=true,false").unwrap();
        let (varied, point, what) = caching.applied(&plan, 1);
        assert_eq!(varied.engine.args, ["--max-num-seqs=4", "--seed", "7"]);
        assert!(
            flags(plan.engine.kind, &point).contains(&"--no-enable-prefix-caching".to_owned())
                && what == "--enable-prefix-caching false"
        );
        let seqs = vary("args.max_num_seqs=8,").unwrap();
        let (with, point, _) = seqs.applied(&plan, 0);
        assert_eq!(with.engine.args, ["--no-enable-prefix-caching", "--seed", "7"]);
        assert_eq!(point.get("max-num-seqs"), Some(&Value::Int(8)));
        let (_, point, what) = seqs.applied(&plan, 1);
        assert_eq!((point.get("max-num-seqs"), what.as_str()), (None, "without max-num-seqs"));
        let drafts = vary(r#"args.speculative-config=,{"method":"ngram","num_speculative_tokens":4}"#).unwrap();
        assert_eq!(drafts.values[1], r#"{"method":"ngram","num_speculative_tokens":4}"#);
        assert_eq!([drafts.requires(0), drafts.requires(1)], [None, Some("acceptance_length>1")]);
        plan.engine.args =
            ["--enable-prefix-caching", "-tp=4", "--speculative-config.method=ngram"].map(str::to_owned).to_vec();
        assert_eq!(caching.applied(&plan, 1).0.engine.args, ["-tp=4", "--speculative-config.method=ngram"]);
        assert_eq!(drafts.applied(&plan, 0).0.engine.args, ["--enable-prefix-caching", "-tp=4"]);
        let routed = vary("env.DYN_ROUTER_MODE=round-robin,kv").unwrap();
        assert_eq!([routed.requires(0), routed.requires(1), seqs.requires(0)], [None, Some("kv_events>0"), None]);
    }

    #[test]
    fn a_variable_is_set_and_a_secret_one_is_not_shown() {
        let plan = crate::settings::parse("q", include_str!("../../../search-spaces/quickstart.toml")).unwrap();
        let (varied, _, what) = vary("env.VLLM_USE_V1=0,1").unwrap().applied(&plan, 1);
        assert_eq!((varied.engine.env["VLLM_USE_V1"].as_str(), what.as_str()), ("1", "VLLM_USE_V1=1"));
        let (_, _, what) = vary("env.HF_TOKEN=secretvalue1,secretvalue2").unwrap().applied(&plan, 1);
        assert!(!what.contains("secretvalue"), "{what}");
    }

    #[test]
    fn an_object_has_components_and_fields_too() {
        let of_object = |text: &str| Vary::parse(text, true).map_err(|failed| failed.message);
        let mode = of_object("Frontend:env.DYN_ROUTER_MODE=round_robin,kv").unwrap();
        assert_eq!((mode.component.as_deref(), mode.requires(1)), (Some("Frontend"), Some("kv_events>0")));
        let wanted = Wanted::Variable("DYN_ROUTER_MODE".into(), Some("round_robin".into()));
        assert_eq!(mode.wanted(0), (wanted, "with DYN_ROUTER_MODE=round_robin in Frontend".to_owned()));
        let strategy = of_object("loadBalancing.strategy=LeastLoad,PrefixHash").unwrap();
        let path = vec!["loadBalancing".to_owned(), "strategy".to_owned()];
        assert_eq!(strategy.wanted(1).0, Wanted::Field(path, "PrefixHash".into()));
        let load = of_object("loadBalancing.prefixHash.replication=128,256").unwrap();
        assert!(matches!(load.wanted(0).0, Wanted::Field(_, number) if number == 128));
        let gone = of_object("env.PATH=,/bin").unwrap();
        assert_eq!(gone.wanted(0), (Wanted::Variable("PATH".into(), None), "without PATH".to_owned()));
        assert!(
            of_object("args.max-num-seqs=,8").unwrap_err().contains("only a variable of an object can be left out")
        );
    }

    #[test]
    fn what_cannot_be_varied_is_refused() {
        for (text, part) in [
            (
                "Frontend:env.DYN_ROUTER_MODE=round_robin,kv",
                "only args.FLAG and env.NAME of a space file can be varied",
            ),
            ("loadBalancing.strategy=LeastLoad,PrefixHash", "name it, such as --deployment NAME, beside its address"),
            ("args.x=1", "give two values with a comma between them"),
            ("args.x=1,2,3", "give two values"),
            ("args.x=1,1", "its two values are the same"),
            ("args.x", "write args.FLAG=A,B or env.NAME=A,B"),
            ("args.api-key=one,two", "--vary args.api-key: a flag that holds a secret cannot be varied"),
            ("env.PATH=,/bin", "unset it first"),
        ] {
            let says = vary(text).unwrap_err();
            assert!(says.contains(part), "{text}: {says}");
        }
    }
}
