//! Redaction: values of variables, arguments and keys that are named like secrets, and passwords in addresses.
//!
//! A value is a secret by its position, and is replaced at that position alone: another argument may have the same text. Only in free text,
//! such as an engine's log, are secrets replaced by their text, and only those of 8 characters or more.

use std::ops::Range;

/// A name with one of these parts is a secret's, in environment variables, flags and keys of JSON.
const NAMES: [&str; 9] =
    ["token", "key", "secret", "password", "passwd", "passphrase", "credential", "authorization", "cookie"];
/// A name of several words that ends with one of these is a secret's.
const ENDS: [&str; 4] = ["pat", "auth", "pwd", "pass"];
/// Parts of names that are no secrets although they contain one of [`NAMES`].
const INNOCENT: [&str; 17] = [
    "token-latency",
    "first-token",
    "per-token",
    "token-usage",
    "token-map",
    "token-distribution",
    "tokens",
    "tokenizer",
    "token-threshold",
    "token-id",
    "bos-token",
    "eos-token",
    "pad-token",
    "unk-token",
    "mask-token",
    "keyfile",
    "allow-credentials",
];
/// Names with these ends hold the place of a secret, not the secret.
const PLACES: [&str; 3] = ["file", "path", "dir"];
/// The replacement of a secret.
pub const REDACTED: &str = "[redacted]";
/// Shorter secrets are left in free text: replacing them would damage numbers and words.
const SHORTEST_IN_TEXT: usize = 8;

/// Secret values, to be found in free text.
#[derive(Clone, Default)]
pub struct Secrets(Vec<String>);

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} secrets", self.0.len())
    }
}

impl Secrets {
    /// Of these values and their words, since of `Bearer KEY` an engine may print the key alone. Empty values are left out.
    pub fn new(values: impl IntoIterator<Item = String>) -> Self {
        let mut values: Vec<String> = values.into_iter().filter(|v| !v.is_empty()).collect();
        let apart = |c: char| c.is_whitespace() || "\"',;&|".contains(c);
        let words = values.iter().flat_map(|value| value.split(apart)).filter(|word| word.len() >= SHORTEST_IN_TEXT);
        let words: Vec<String> = words.map(str::to_owned).collect();
        values.extend(words);
        // One may be the beginning of another.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        values.dedup();
        Self(values)
    }

    /// Those among environment variables, by name and value.
    pub fn of_variables(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let found = variables.into_iter().flat_map(|(name, value)| {
            let places = in_variable(&name, &value);
            places.into_iter().filter_map(|range| Some(value.get(range)?.to_owned())).collect::<Vec<_>>()
        });
        Self::new(found)
    }

    #[must_use]
    pub fn and(self, others: Self) -> Self {
        Self::new(self.0.into_iter().chain(others.0))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Free text without them.
    pub fn redact(&self, text: &str) -> String {
        let long = self.0.iter().filter(|secret| secret.len() >= SHORTEST_IN_TEXT);
        long.fold(text.to_owned(), |text, secret| text.replace(secret, REDACTED))
    }
}

/// The words of a command line as they may be written down.
pub fn redact_words<S: AsRef<str>>(words: &[S]) -> Vec<String> {
    let mut redacted: Vec<String> = words.iter().map(|word| word.as_ref().to_owned()).collect();
    // From behind, so that earlier places of the same word stay where they are.
    for (at, range) in in_words(words).into_iter().rev() {
        redacted[at].replace_range(range, REDACTED);
    }
    redacted
}

/// The value of an environment variable as it may be written down.
pub fn redact_variable(name: &str, value: &str) -> String {
    let mut value = value.to_owned();
    in_variable(name, &value).into_iter().rev().for_each(|range| value.replace_range(range, REDACTED));
    value
}

pub fn holds_secret(flag: &str, value: &str) -> bool {
    !in_variable(flag, value).is_empty()
}

/// A person's file as an error may quote it: every byte where it was, those of secrets as asterisks.
pub fn masked(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let mut from = 0;
        for range in in_value(line) {
            shown.push_str(&line[from..range.start]);
            shown.push_str(&"*".repeat(range.len()));
            from = range.end;
        }
        shown.push_str(&line[from..]);
    }
    shown
}

/// Where secrets stand in a variable's value, in order.
fn in_variable(name: &str, value: &str) -> Vec<Range<usize>> {
    if is_secret(name) && !value.is_empty() { whole(value) } else { in_value(value) }
}

/// The one place that is all of a text.
fn whole(text: &str) -> Vec<Range<usize>> {
    std::iter::once(0..text.len()).collect()
}

/// How many of the next words are values of a secret flag.
#[derive(Clone, Copy, PartialEq)]
enum Behind {
    Nothing,
    One,
    All,
}

/// Where secrets stand in the words of a command line: which word, and which bytes of it, in order.
pub(super) fn in_words<S: AsRef<str>>(words: &[S]) -> Vec<(usize, Range<usize>)> {
    let mut found = Vec::new();
    let mut behind = Behind::Nothing;
    for (at, word) in words.iter().map(AsRef::as_ref).enumerate() {
        let flag = word.strip_prefix('-').filter(|rest| !rest.is_empty()).map(|rest| rest.trim_start_matches('-'));
        let assigned = word.split_once('=').filter(|(name, _)| {
            let name = name.trim_start_matches('-');
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
        });
        let ranges = match (flag, assigned) {
            (None, _) if behind != Behind::Nothing => whole(word),
            (_, Some((name, value))) => {
                let start = name.len() + 1;
                shifted(in_variable(name.trim_start_matches('-'), value), start)
            }
            _ => in_value(word),
        };
        behind = match (flag, assigned) {
            (Some(name), None) if normal(name) == "api-key" => Behind::All,
            (Some(name), None) if is_secret(name) => Behind::One,
            (None, _) if behind == Behind::All => Behind::All,
            _ => Behind::Nothing,
        };
        found.extend(ranges.into_iter().filter(|range| !range.is_empty()).map(|range| (at, range)));
    }
    found
}

/// Where secrets stand in a text that has no name of its own: a line of a shell, JSON, a header, an address. In order, apart from each other.
fn in_value(text: &str) -> Vec<Range<usize>> {
    let mut found = in_json(text);
    found.extend(in_addresses(text));
    found.extend(in_header(text));
    found.extend(in_assignments(text));
    found.extend(in_lists(text));
    let pieces = pieces(text);
    if pieces.len() > 1 {
        let words: Vec<&str> = pieces.iter().map(|piece| &text[piece.clone()]).collect();
        let places = in_words(&words).into_iter();
        found.extend(
            places.map(|(at, range)| unquoted(text, pieces[at].start + range.start..pieces[at].start + range.end)),
        );
    }
    found.sort_by_key(|range| (range.start, std::cmp::Reverse(range.end)));
    let mut apart: Vec<Range<usize>> = Vec::new();
    for range in found {
        match apart.last_mut() {
            Some(last) if range.start < last.end => last.end = last.end.max(range.end),
            _ => apart.push(range),
        }
    }
    apart
}

fn shifted(ranges: impl IntoIterator<Item = Range<usize>>, by: usize) -> Vec<Range<usize>> {
    ranges.into_iter().map(|range| range.start + by..range.end + by).collect()
}

/// What is between the quotes of a word, where it is in quotes.
fn unquoted(text: &str, range: Range<usize>) -> Range<usize> {
    let quoted = ['"', '\''].iter().any(|quote| {
        let word = &text[range.clone()];
        word.len() > 1 && word.starts_with(*quote) && word.ends_with(*quote)
    });
    if quoted { range.start + 1..range.end - 1 } else { range }
}

/// The words of a line as a shell takes them apart, quotes included.
fn pieces(text: &str) -> Vec<Range<usize>> {
    let (mut found, mut start, mut quote) = (Vec::new(), None, None);
    for (at, c) in text.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c.is_whitespace() || matches!(c, ';' | '&' | '|') => {
                found.extend(start.take().map(|start| start..at));
            }
            None => {
                start = start.or(Some(at));
                quote = Some(c).filter(|c| matches!(c, '"' | '\''));
            }
        }
    }
    found.extend(start.map(|start| start..text.len()));
    found
}

/// Strings under the keys of JSON, or of what Python prints, that are named like secrets; those of a list under such a key too.
fn in_json(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut rest = 0;
    let mut secret = false;
    while let Some(open) = text[rest..].find(['"', '\'', '{', '}', ']', ',']).map(|at| rest + at) {
        let mark = &text[open..=open];
        rest = open + 1;
        if matches!(mark, "{" | "}" | "]") {
            secret = false;
        }
        if !matches!(mark, "\"" | "'") {
            continue;
        }
        let inside = text[rest..].char_indices().scan(false, |escaped, (at, c)| {
            let ends = !*escaped && mark.starts_with(c);
            *escaped = c == '\\' && !*escaped;
            Some(ends.then_some(at))
        });
        let Some(length) = inside.flatten().next() else { break };
        let inside = rest..rest + length;
        rest = inside.end + 1;
        let behind = text[rest..].trim_start();
        if let Some(value) = behind.strip_prefix(':').map(str::trim_start) {
            secret = is_secret(&text[inside]);
            // A number or a bare word ends where the next mark is.
            if secret && !value.starts_with(['"', '\'', '[', '{']) {
                let from = text.len() - value.len();
                let length = value.find([',', '}', ']']).unwrap_or(value.len());
                found.push(from..from + value[..length].trim_end().len());
            }
        } else if secret {
            found.push(inside);
            secret = !text[..open].trim_end().ends_with(':');
        }
    }
    found.retain(|range| !range.is_empty());
    found
}

/// Names and passwords of addresses, and parameters of their queries that are named like secrets.
fn in_addresses(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (scheme, _) in text.match_indices("://") {
        let start = scheme + 3;
        let length = text[start..].find(|c: char| c.is_whitespace() || "\"'<>`".contains(c));
        let end = length.map_or(text.len(), |length| start + length);
        let authority = start..text[start..end].find(['/', '?', '#']).map_or(end, |length| start + length);
        if let Some(user) = text[authority].rfind('@') {
            // A token may stand alone, where a name is meant.
            let password = text[start..start + user].find(':').map_or(start, |colon| start + colon + 1);
            found.push(password..start + user);
        }
        let query = text[start..end].find('?').map(|at| start + at + 1);
        let mut from = query.unwrap_or(end);
        for part in text[from..end].split('&') {
            if let Some((name, value)) = part.split_once('=').filter(|(name, _)| is_secret(name)) {
                let at = from + name.len() + 1;
                found.push(at..at + value.len());
            }
            from += part.len() + 1;
        }
    }
    found.retain(|range| !range.is_empty());
    found
}

/// The value of a header that is named like a secret, to the end of its quotes.
fn in_header(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (colon, _) in text.match_indices(": ") {
        let mut words = text[..colon].rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_');
        if words.next().is_some_and(is_secret) {
            let start = colon + 2;
            let length = text[start..].find(['"', '\'', '\n']).unwrap_or(text.len() - start);
            found.extend((length > 0).then_some(start..start + length));
        }
    }
    found
}

/// The value that is assigned to a name like a secret's, as TOML and Python write it: `name = "value"`.
fn in_assignments(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (sign, _) in text.match_indices('=') {
        let name = text[..sign].trim_end().trim_end_matches(['"', '\'']);
        let mut words = name.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_');
        let value = text[sign + 1..].trim_start();
        if !words.next().is_some_and(is_secret) || value.starts_with(['=', '[', '{']) {
            continue;
        }
        let inside = value.trim_start_matches(['"', '\'']);
        let quoted = inside.len() < value.len();
        let ends = |c: char| if quoted { value.starts_with(c) } else { c.is_whitespace() || ",}];&|".contains(c) };
        let start = text.len() - inside.len();
        found.push(start..start + inside.find(ends).unwrap_or(inside.len()));
    }
    found.retain(|range| !range.is_empty());
    found
}

/// A command line that is written as a list of strings.
fn in_lists(text: &str) -> Vec<Range<usize>> {
    let (mut strings, mut rest) = (Vec::new(), 0);
    while let Some(open) = text[rest..].find(['"', '\'']).map(|at| rest + at) {
        let Some(length) = text[open + 1..].find(&text[open..=open]) else { break };
        strings.push(open + 1..open + 1 + length);
        rest = open + length + 2;
    }
    let neighbours = |a: &Range<usize>, b: &Range<usize>| {
        text[a.end + 1..b.start - 1].chars().all(|c| c == ',' || c.is_whitespace())
    };
    let lists = strings.chunk_by(neighbours).filter(|list| list.len() > 1);
    let found = lists.flat_map(|list| {
        let words: Vec<&str> = list.iter().map(|string| &text[string.clone()]).collect();
        let places = in_words(&words).into_iter();
        places.flat_map(|(at, range)| shifted(std::iter::once(range), list[at].start)).collect::<Vec<_>>()
    });
    found.collect()
}

fn normal(name: &str) -> String {
    name.to_ascii_lowercase().replace(['_', '.'], "-")
}

fn is_secret(name: &str) -> bool {
    let name = INNOCENT.iter().fold(normal(name), |name, innocent| name.replace(innocent, ""));
    let (rest, last) = name.rsplit_once('-').unwrap_or(("", &name));
    if PLACES.contains(&last) {
        return false;
    }
    NAMES.iter().any(|n| name.contains(n)) || (!rest.is_empty() && ENDS.contains(&last))
}

#[cfg(test)]
mod tests {
    use super::super::{Plan, redact_plan};
    use super::*;

    #[test]
    fn names_tell_secrets_from_counts() {
        const SECRET: [&str; 4] = ["api-key", "hf-token", "admin-api-key", "ssl-keyfile-password"];
        for name in
            ["HF_TOKEN", "api-key", "AWS_SECRET_ACCESS_KEY", "GITHUB_PAT", "NGC_AUTH", "DB_PWD", "ssl-keyfile-password"]
        {
            assert!(is_secret(name), "{name}");
        }
        for flag in crate::engine::DIALECTS.iter().flat_map(|dialect| dialect.flags().lines()) {
            assert_eq!(is_secret(flag), SECRET.contains(&flag), "{flag}");
        }
        for name in ["PWD", "OLDPWD", "PATH", "HF_TOKEN_PATH", "SSH_AUTH_SOCK", "bos_token_id"] {
            assert!(!is_secret(name), "{name}");
        }
    }

    #[test]
    fn a_secret_is_taken_out_where_it_stands_and_nowhere_else() {
        let plan = plan_with(
            r#""--max-model-len", "1024", "--api-key", "1", "24", "--seed", "1""#,
            r#"HF_HUB_DISABLE_IMPLICIT_TOKEN = "1", OMP_NUM_THREADS = "1""#,
        );
        let redacted = redact_plan(&plan);
        let expected = ["--max-model-len", "1024", "--api-key", REDACTED, REDACTED, "--seed", "1"];
        assert_eq!(redacted.engine.args, expected);
        assert_eq!(redacted.engine.env["OMP_NUM_THREADS"], "1");
        assert_eq!(redacted.engine.env["HF_HUB_DISABLE_IMPLICIT_TOKEN"], REDACTED);
        assert_eq!(redact_plan(&redacted), redacted, "once is enough");
        let secrets = Secrets::of(&plan);
        assert!(!secrets.is_empty());
        assert_eq!(secrets.redact("took 1024 ms, 1 of 24"), "took 1024 ms, 1 of 24", "short ones are left in a log");
    }

    #[test]
    fn wherever_a_user_puts_a_secret_it_is_found() {
        for (words, innocent) in [
            (&["--api-key", "hush-one", "hush-two", "--port"][..], "--port"),
            (&["--api_key=hush-one", "--max-num-seqs"], "--max-num-seqs"),
            (&["--hf-token", "hush-one", "model"], "model"),
            (&["env", "MY_TOKEN=hush-one", "vllm"], "vllm"),
            (&["env", "DEPLOY_PAT=hush-one", "REGION=eu"], "REGION=eu"),
            (&["sh", "-c", "export DB_PWD=hush-one; vllm serve m --api-key 'hush two' --seed 4"], "--seed 4"),
            (&["--proxy", "http://me:hush-one@proxy:8080/x?y=1"], "proxy:8080/x?y=1"),
            (&["--index-url=https://hush-one@pypi.example/simple"], "pypi.example"),
            (&["--url", "https://h/v1?region=eu&access_token=hush-one&x=2"], "region=eu"),
            (&["--config", r#"{"api_key": "hush-one", "size": 4}"#], r#""size": 4"#),
            (&["--config", r#"{"a": {"secret": ["hush-one", "hush\"hush-two"], "b": "c"}}"#], r#""b": "c""#),
            (&["--config", r#"{"password": 4711004711, "b": 2}"#], r#""b": 2"#),
            (&["--config={'auth-token': 'hush-one', 'tokens': '12'}"], "12"),
            (&["--header", "Authorization: Bearer hush-one"], "Authorization"),
        ] {
            let said = redact_words(words).join(" ");
            assert!(!said.contains("hush") && !said.contains("4711"), "{said}");
            assert!(said.contains(innocent) && said.contains(REDACTED), "{said}");
        }
        let proxy = redact_variable("HTTPS_PROXY", "http://user:hush-one@proxy:3128");
        assert_eq!(proxy, "http://user:[redacted]@proxy:3128");
    }

    #[test]
    fn words_without_a_secret_stay_as_they_are() {
        for words in [
            &["--speculative-config", r#"{"method": "ngram", "num_speculative_tokens": 4}"#][..],
            &["--max-num-batched-tokens", "2048", "--long-prefill-token-threshold", "512"],
            &["--override-generation-config", r#"{"eos_token_id": 2}"#, "--url", "http://h:8000/a@b?c=d"],
            &["sh", "-c", "vllm serve 'my model' --port 8000"],
            &["--", "-", "", "=", "a=", "://", "://@", "'", "\"", "{\"key\":"],
        ] {
            assert_eq!(redact_words(words), words);
        }
    }

    #[test]
    fn free_text_loses_what_is_long_enough() {
        let inherited =
            [("HF_TOKEN", "hf_abcdefgh"), ("AWS_SECRET_ACCESS_KEY", "hf_abcdefgh-and-more"), ("LANG", "C.UTF-8-long")];
        let script = ["sh", "-c", "export A_TOKEN=hush-one; B_TOKEN=\"hush two\"&& vllm --api-key 'hush-six'"];
        let words = in_words(&script).into_iter().map(|(at, range)| &script[at][range]).collect::<Vec<_>>();
        assert_eq!(words, ["hush-one", "hush two", "hush-six"], "as the shell takes them");
        let secrets = Secrets::of_variables(inherited.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let said = secrets.redact("hf_abcdefgh, hf_abcdefgh-and-more and C.UTF-8-long");
        assert_eq!(said, "[redacted], [redacted] and C.UTF-8-long");
        assert!(!format!("{secrets:?}").contains("hf_"));
    }

    #[test]
    fn a_file_is_quoted_without_its_secrets_and_every_place_stays() {
        let text = "env = { HF_TOKEN = \"hush-one\", DB_PWD = 'hush', A = \"b\" }\nargs = [\"--api-key\", \"hush-one\", \"--seed\", \"4\"]\n";
        let shown = masked(text);
        assert_eq!(shown.len(), text.len());
        assert!(!shown.contains("hush"), "{shown}");
        for kept in ["env = { HF_TOKEN = \"", "A = \"b\" }", "\"--seed\", \"4\"]"] {
            assert_eq!(shown.find(kept), text.find(kept), "{shown}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_words_are_redacted_without_a_panic(words in proptest::collection::vec("[-a-z=:/@?&{}\\[\\]\"' é\\\\]{0,20}|--api-key|\"key\"", 0..6)) {
            let redacted = redact_words(&words);
            proptest::prop_assert_eq!(redacted.len(), words.len());
            let text = words.join(" ");
            proptest::prop_assert_eq!(masked(&text).len(), text.len());
        }
    }

    fn plan_with(args: &str, env: &str) -> Plan {
        let text = format!(
            "[slo]\nttft_p99 = \"1s\"\n[engine]\nkind = \"vllm\"\ncommand = [\"vllm\", \"serve\", \"m\"]\nargs = [{args}]\nenv = {{ {env} }}\n\
            [workload]\nkind = \"random\"\ninput_tokens = 8\noutput_tokens = 8\n\
            [parameters]\nmax-num-seqs = {{ values = [8, 16], default = 8 }}\n"
        );
        crate::settings::parse("space.toml", &text).unwrap()
    }
}
