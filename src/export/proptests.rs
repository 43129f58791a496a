//! Any combination of spelling, order, quotes, comments and neighbours: the arguments are the intended ones, and nothing else changes, as
//! another YAML parser reads it.

use proptest::prelude::*;
use saphyr_parser::{Event, Parser};

use super::flags::{Flags, Setting};
use super::write::{IntendedFlags, export};
use crate::engine::is_left_out;
use crate::space::Value;

const TUNED: [&str; 3] = ["gpu-memory-utilization", "max-num-batched-tokens", "max-num-seqs"];
const OTHERS: [(&str, Option<&str>); 6] = [
    ("model", Some("org/model")),
    ("max-model-len", Some("8192")),
    ("enable-prefix-caching", None),
    ("served-model-name", Some("größe")),
    ("speculative-config", Some("{\"method\":\"ngram\"}")),
    ("disable-log-requests", None),
];

/// How a list of words is written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    Block(usize),
    Flow,
    FlowLines,
    Literal,
    Folded,
    Quoted,
    Variable,
    /// An array of a script, which gets more words under a condition.
    Array,
}

#[derive(Clone, Debug)]
struct Arg {
    flag: &'static str,
    value: Option<String>,
    glued: bool,
    underscores: bool,
    quotes: u8,
    comment: bool,
    above: bool,
}

impl Arg {
    fn name(&self) -> String {
        let name = if self.underscores { self.flag.replace('-', "_") } else { self.flag.to_owned() };
        format!("--{name}")
    }

    fn words(&self) -> Vec<String> {
        match &self.value {
            None => vec![self.name()],
            Some(value) if self.glued => vec![format!("{}={value}", self.name())],
            Some(value) => vec![self.name(), value.clone()],
        }
    }
}

#[derive(Clone, Debug)]
struct Manifest {
    shape: Shape,
    args: Vec<Arg>,
    crlf: bool,
    last: bool,
}

fn yaml(word: &str, quotes: u8) -> String {
    let needs = word.starts_with(|c: char| c.is_ascii_digit() || c == '{') || word.contains(['{', '"']);
    match quotes {
        1 => format!("\"{}\"", word.replace('"', "\\\"")),
        2 => format!("'{word}'"),
        _ if needs => format!("'{word}'"),
        _ => word.to_owned(),
    }
}

fn shell(word: &str) -> String {
    if word.contains('"') { format!("'{word}'") } else { word.to_owned() }
}

impl Manifest {
    fn render(&self) -> String {
        let mut text = String::from(
            "# a file\napiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: m  # its name\nspec:\n  template:\n    spec:\n      containers:\n      - name: side\n        image: nginx:1\n        args: [--max-num-seqs, \"7\"]\n      - name: engine\n        image: 'vllm/vllm-openai:v1'\n",
        );
        let indent = |by: usize| " ".repeat(8 + by);
        let line: Vec<String> =
            self.args.iter().map(|a| a.words().iter().map(|w| shell(w)).collect::<Vec<_>>().join(" ")).collect();
        match self.shape {
            Shape::Block(by) => {
                text += "        args:\n";
                for arg in &self.args {
                    if arg.above {
                        text += &format!("{}# why: --max-num-seqs 5\n", indent(by));
                    }
                    for word in arg.words() {
                        let comment = if arg.comment { "   # note" } else { "" };
                        text += &format!("{}- {}{comment}\n", indent(by), yaml(&word, arg.quotes));
                    }
                }
            }
            Shape::Flow => {
                let words: Vec<String> = self
                    .args
                    .iter()
                    .flat_map(|a| a.words().into_iter().map(|w| yaml(&w, a.quotes)).collect::<Vec<_>>())
                    .collect();
                text += &format!("        args: [{}]   # all of them\n", words.join(", "));
            }
            Shape::FlowLines => {
                text += "        args: [\n";
                for arg in &self.args {
                    let words: Vec<String> = arg.words().iter().map(|w| yaml(w, arg.quotes)).collect();
                    let comment = if arg.comment { "  # note" } else { "" };
                    text += &format!("          {},{comment}\n", words.join(", "));
                }
                text += "        ]\n";
            }
            Shape::Literal => {
                text += "        command: [sh, -c]\n        args:\n        - |\n          set -e\n";
                text += &format!(
                    "          exec vllm serve m \\\n            {} 2>&1 | tee /log\n",
                    line.join(" \\\n            ")
                );
            }
            Shape::Folded => {
                text += "        command: [sh, -c]\n        args:\n        - >-\n          exec vllm serve m\n";
                text += &format!("          {}\n          2>&1 | tee /log\n", line.join("\n          "));
            }
            Shape::Quoted => {
                let script = format!("exec vllm serve m {} && true", line.join(" "));
                text += &format!("        command: [sh, -c, \"{}\"]\n", script.replace('"', "\\\""));
            }
            Shape::Array => {
                text += &format!(
                    "        command: [bash, -c]\n        args:\n        - |\n          A=({})\n          if x; then A+=(--y \"$Z\"); fi\n          exec vllm serve m \"${{A[@]}}\" 2>&1\n",
                    line.join(" ")
                );
            }
            Shape::Variable => {
                let words: Vec<String> = self.args.iter().flat_map(Arg::words).collect();
                text += &format!(
                    "        command: [/run.sh]\n        env:\n        - name: VLLM_EXTRA_ARGS\n          value: '--model m {}'\n",
                    words.join(" ")
                );
            }
        }
        text += "        workingDir: /end\n      # the end\n---\nkind: ConfigMap\ndata: {run.sh: 'vllm serve x $VLLM_EXTRA_ARGS'}\n";
        if !self.last {
            text.truncate(text.len() - 1);
        }
        if self.crlf { text.replace('\n', "\r\n") } else { text }
    }

    /// The flags and values that the engine shall see, in their order.
    fn expected(&self, settings: &[Setting]) -> Vec<(String, Option<String>)> {
        let mut pairs: Vec<(String, Option<String>)> = Vec::new();
        for (i, arg) in self.args.iter().enumerate() {
            let overridden = TUNED.contains(&arg.flag) && self.args[i + 1..].iter().any(|later| later.flag == arg.flag);
            let setting = settings.iter().find(|s| s.name == arg.flag);
            let new = setting.map(|s| s.value.to_string());
            let off = setting.is_some_and(|s| is_left_out(&s.value));
            if !overridden && !off {
                pairs.push((arg.flag.to_owned(), new.or_else(|| arg.value.clone())));
            }
        }
        for setting in settings {
            if !self.args.iter().any(|a| a.flag == setting.name) && !is_left_out(&setting.value) {
                pairs.push((setting.name.clone(), Some(setting.value.to_string())));
            }
        }
        pairs
    }
}

/// Every scalar of a file in its order, as another parser reads it.
fn scalars(text: &str) -> Vec<String> {
    let events = Parser::new_from_str(text).map(|event| event.unwrap().0);
    events
        .filter_map(|event| if let Event::Scalar(text, ..) = event { Some(text.into_owned()) } else { None })
        .collect()
}

/// Flags and values among words.
fn pairs(words: &[String]) -> Vec<(String, Option<String>)> {
    let mut found = Vec::new();
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        let Some(body) = word.strip_prefix("--") else { continue };
        let (name, value) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (body, words.next_if(|next| !next.starts_with("--")).cloned()),
        };
        found.push((name.replace('_', "-"), value));
    }
    found
}

/// The engine's arguments in a manifest, and all scalars around them.
fn arguments(shape: Shape, text: &str) -> (Vec<(String, Option<String>)>, Vec<String>) {
    let all = scalars(text);
    let engine = all.iter().position(|s| s == "engine").unwrap();
    let end = all.iter().position(|s| s == "workingDir").unwrap();
    let region = &all[engine..end];
    let around = |skip: usize| all[..engine + skip].iter().chain(&all[end..]).cloned().collect::<Vec<_>>();
    let unquoted =
        |text: &str| text.split_whitespace().map(|w| w.trim_matches('\'').replace("='", "=")).collect::<Vec<_>>();
    match shape {
        Shape::Block(_) | Shape::Flow | Shape::FlowLines => (pairs(&region[4..]), around(4)),
        Shape::Array => {
            let script = region.iter().max_by_key(|s| s.len()).unwrap();
            let between =
                |from: &str, to: &str| script.split(from).nth(1).unwrap().split(to).next().unwrap().to_owned();
            let words = [between("A=(", ")"), between("\"${A[@]}\"", "2>&1")].map(|text| unquoted(&text)).concat();
            (pairs(&words), around(0))
        }
        _ => {
            let line = region.iter().max_by_key(|s| s.len()).unwrap();
            let cut = line.split(" 2>&1").next().unwrap().split(" &&").next().unwrap();
            let args = cut.split(" m ").nth(1).unwrap_or_default();
            let words: Vec<String> = unquoted(args).into_iter().filter(|w| w != "\\").collect();
            (pairs(&words), around(0))
        }
    }
}

fn arg() -> impl Strategy<Value = Arg> {
    let which = prop_oneof![
        (0..TUNED.len(), 1..2000_u32)
            .prop_map(|(i, n)| (TUNED[i], Some(if i == 0 { format!("0.{}", 5 + n % 5) } else { n.to_string() }))),
        (0..OTHERS.len()).prop_map(|i| (OTHERS[i].0, OTHERS[i].1.map(str::to_owned))),
    ];
    (which, any::<bool>(), any::<bool>(), 0..3_u8, any::<bool>(), any::<bool>()).prop_map(
        |((flag, value), glued, underscores, quotes, comment, above)| Arg {
            flag,
            value,
            glued,
            underscores,
            quotes,
            comment,
            above,
        },
    )
}

fn manifest() -> impl Strategy<Value = Manifest> {
    let shape = prop_oneof![
        Just(Shape::Block(0)),
        Just(Shape::Block(2)),
        Just(Shape::Block(4)),
        Just(Shape::Flow),
        Just(Shape::FlowLines),
        Just(Shape::Literal),
        Just(Shape::Folded),
        Just(Shape::Quoted),
        Just(Shape::Variable),
        Just(Shape::Array),
    ];
    // A variable or a list without a word holds no arguments.
    let first = Arg {
        flag: "dtype",
        value: Some("half".into()),
        glued: false,
        underscores: false,
        quotes: 0,
        comment: false,
        above: false,
    };
    (shape, prop::collection::vec(arg(), 1..9), any::<bool>(), any::<bool>()).prop_map(
        move |(shape, mut args, crlf, last)| {
            args.insert(0, Arg { flag: "max-model-len", value: Some("1".into()), ..first.clone() });
            Manifest { shape, args, crlf, last }
        },
    )
}

fn settings(values: (u32, u32, u32), off: [bool; 3]) -> Vec<Setting> {
    let value = |i: usize, value| if off[i] { Value::Text("off".to_owned()) } else { value };
    let setting = |i: usize, on| Setting { name: TUNED[i].to_owned(), value: value(i, on) };
    vec![
        setting(0, Value::Real(f64::from(values.0) / 1000.0)),
        setting(1, Value::Int(values.1.into())),
        setting(2, Value::Int(values.2.into())),
    ]
}

fn exported(text: &str, settings: &[Setting]) -> String {
    let wanted =
        IntendedFlags { settings: settings.to_vec(), containers: vec!["engine".into()], ..IntendedFlags::default() };
    export("m", text, &wanted, &Flags::of(crate::settings::EngineKind::Vllm, TUNED), &|_, _| Vec::new())
        .map_err(|e| e.render())
        .unwrap()
        .text
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn nothing_but_the_arguments_changes(
        manifest in manifest(),
        values in (501..999_u32, 2001..9000_u32, 2001..9000_u32),
        off in prop::array::uniform3(prop::bool::weighted(0.3)),
    ) {
        let before = manifest.render();
        let settings = settings(values, off);
        let after = exported(&before, &settings);
        let ((_, around_before), (args, around_after)) = (arguments(manifest.shape, &before), arguments(manifest.shape, &after));
        prop_assert_eq!(args, manifest.expected(&settings), "{}", after);
        if matches!(manifest.shape, Shape::Block(_) | Shape::Flow | Shape::FlowLines) {
            prop_assert_eq!(around_before, around_after);
        }
        // Every line that says nothing of a tuned flag stays, in its order.
        let tuned = |line: &str| TUNED.iter().any(|t| line.contains(t) || line.contains(&t.replace('-', "_"))) && !line.contains("# why");
        let value = |line: &str| manifest.args.iter().any(|a| TUNED.contains(&a.flag) && a.value.as_ref().is_some_and(|v| line.contains(v.as_str())));
        let grows = |line: &str| line.contains("\"7\"") || line.contains("vllm serve") || line.contains("args: [") || line.contains("2>&1") || line.contains("value:");
        let mut lines = after.split_inclusive('\n').peekable();
        for line in before.split_inclusive('\n').filter(|l| !tuned(l) && !value(l) && !grows(l)) {
            let body = line.trim_end_matches(['\r', '\n', '\\', ' ']);
            // The last option of a list or a script may get a neighbour on its line.
            prop_assert!(lines.any(|l| l == line || l.starts_with(body)), "{line:?} is gone from\n{after}");
        }
        prop_assert_eq!(after.matches("\r\n").count() == after.matches('\n').count(), manifest.crlf);
        prop_assert_eq!(exported(&after, &settings), after.clone());
        // Where each flag stood once, the old values bring the old file back, byte for byte.
        let once = off == [false; 3] && TUNED.iter().all(|t| manifest.args.iter().filter(|a| a.flag == *t).count() == 1);
        if once {
            let old = |i: usize| manifest.args.iter().find(|a| a.flag == TUNED[i]).unwrap().value.clone().unwrap();
            let back = vec![
                Setting { name: TUNED[0].into(), value: Value::Real(old(0).parse().unwrap()) },
                Setting { name: TUNED[1].into(), value: Value::Int(old(1).parse().unwrap()) },
                Setting { name: TUNED[2].into(), value: Value::Int(old(2).parse().unwrap()) },
            ];
            prop_assert_eq!(exported(&after, &back), before);
        }
    }

    #[test]
    fn variables_change_and_nothing_around_them(
        there in prop::collection::vec((0..VARIABLES.len(), any::<bool>(), any::<bool>()), 1..6),
        becomes in prop::collection::vec(0..4_usize, VARIABLES.len()..=VARIABLES.len()),
        style in prop::sample::select(vec![Env::Block, Env::Flow, Env::Lines, Env::Mapping, Env::FlowMapping, Env::Texts]),
        crlf in any::<bool>(),
    ) {
        let mut seen = Vec::new();
        let there: Vec<_> = there.into_iter().filter(|(name, ..)| !seen.contains(name) && { seen.push(*name); true }).collect();
        let before = style.render(&there);
        let before = if crlf { before.replace('\n', "\r\n") } else { before };
        // 0 leaves a variable alone, 1 takes it out, the others set it.
        let setting = |(i, to): (usize, &usize)| {
            let value = match to { 0 => return None, 1 => "off", 2 => "new", _ => "9" };
            Some(Setting { name: format!("env.{}", VARIABLES[i]), value: Value::Text(value.to_owned()) })
        };
        let settings: Vec<Setting> = becomes.iter().enumerate().filter_map(setting).collect();
        let after = exported(&before, &settings);
        let mut expected: Vec<(String, String)> = Vec::new();
        for (name, ..) in &there {
            let value = match becomes[*name] { 0 => "old", 1 => continue, 2 => "new", _ => "9" };
            expected.push((VARIABLES[*name].to_owned(), value.to_owned()));
        }
        for (i, to) in becomes.iter().enumerate().filter(|(i, to)| **to > 1 && !there.iter().any(|(name, ..)| name == i)) {
            expected.push((VARIABLES[i].to_owned(), if *to == 2 { "new" } else { "9" }.to_owned()));
        }
        prop_assert_eq!(style.variables(&after), expected, "{}", after);
        prop_assert_eq!(exported(&after, &settings), after.clone());
        // What is noted of no variable stays, and so does what is noted of one that stays.
        for (name, above, behind) in &there {
            prop_assert!(!above || !style.notes() || after.contains(&format!("# above {name}")), "{}", after);
            prop_assert!(!behind || !style.notes() || becomes[*name] == 1 || after.contains(&format!("# behind {name}")), "{}", after);
        }
        prop_assert_eq!(after.matches("\r\n").count() == after.matches('\n').count(), crlf);
        let (head, tail) = (before.split("env").next().unwrap(), before.split("workingDir").nth(1).unwrap());
        prop_assert!(after.starts_with(head) && after.ends_with(tail), "{}", after);
    }
}

const VARIABLES: [&str; 5] = ["ALPHA", "BETA", "GAMMA", "DELTA", "EPSILON"];

/// How variables are written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Env {
    Block,
    Flow,
    Lines,
    Mapping,
    FlowMapping,
    Texts,
}

impl Env {
    /// Whether what is noted has a place.
    fn notes(self) -> bool {
        !matches!(self, Self::Flow | Self::FlowMapping)
    }

    /// A file with these variables: each by its number, with a note above it and behind it or not.
    fn render(self, there: &[(usize, bool, bool)]) -> String {
        let compose = matches!(self, Self::Mapping | Self::FlowMapping | Self::Texts);
        let head = if compose {
            "services:\n  engine:\n    image: vllm/vllm-openai:v1\n    command: [m]\n"
        } else {
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\nspec:\n  containers:\n  - name: engine\n    image: vllm/vllm-openai:v1\n    args: [m]\n"
        };
        let item = |name: &str| match self {
            Self::Block => format!("- name: {name}\n      value: old"),
            Self::Flow | Self::Lines => format!("{{name: {name}, value: old}}"),
            Self::Mapping | Self::FlowMapping => format!("{name}: old"),
            Self::Texts => format!("- {name}=old"),
        };
        let items = || there.iter().map(|(name, ..)| item(VARIABLES[*name])).collect::<Vec<_>>().join(", ");
        let lines = |comma: &str| {
            let line = |(i, (name, above, behind)): (usize, &(usize, bool, bool))| {
                let above = if *above { format!("    # above {name}\n") } else { String::new() };
                let behind = if *behind { format!("   # behind {name}") } else { String::new() };
                // The last item has a comma where the first has a note.
                let comma = if i + 1 == there.len() && !there[0].1 { "" } else { comma };
                format!("{above}    {}{comma}{behind}\n", item(VARIABLES[*name]))
            };
            there.iter().enumerate().map(line).collect::<String>()
        };
        let key = if compose { "environment" } else { "env" };
        let body = match self {
            Self::Flow => format!("    {key}: [{}]   # all\n", items()),
            Self::FlowMapping => format!("    {key}: {{{}}}   # all\n", items()),
            Self::Lines => format!("    {key}: [\n{}      ]\n", lines(",").replace("    ", "      ")),
            Self::Block => format!("    {key}:   # all\n{}", lines("")),
            Self::Mapping | Self::Texts => format!("    {key}:\n{}", lines("").replace("    ", "      ")),
        };
        format!("{head}{body}    {}: /end\n", if compose { "working_dir" } else { "workingDir" })
            .replace("working_dir", "workingDir")
    }

    /// The variables of a file, as another parser reads it.
    fn variables(self, text: &str) -> Vec<(String, String)> {
        let all = scalars(text);
        let key = |s: &String| s == "env" || s == "environment";
        let from = all.iter().position(key).map_or(all.len(), |at| at + 1);
        let words = &all[from..all.iter().position(|s| s == "workingDir").unwrap().max(from)];
        let pairs: Vec<&String> = words.iter().filter(|s| !matches!(s.as_str(), "name" | "value")).collect();
        if pairs.first().is_some_and(|s| s.contains('=')) {
            return pairs.iter().filter_map(|s| s.split_once('=')).map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
        }
        pairs.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
    }
}
