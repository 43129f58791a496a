//! What must never be written down: values of environment variables and arguments that are named like secrets.

use super::Plan;

/// Words that name a secret, in environment variables and in flags.
const NAMES: [&str; 6] = ["token", "key", "secret", "password", "passwd", "credential"];
/// Words that contain one of the names but count tokens or name files.
const INNOCENT: [&str; 3] = ["tokens", "tokenizer", "keyfile"];
/// Stands where a secret stood.
pub const REDACTED: &str = "[redacted]";

/// The secret values of a plan.
#[derive(Clone, Default)]
pub struct Secrets(Vec<String>);

impl Secrets {
    /// Of these values; empty ones are none.
    pub fn new(values: impl IntoIterator<Item = String>) -> Self {
        Self(values.into_iter().filter(|v| !v.is_empty()).collect())
    }

    /// Those that a plan holds in `engine.env`, `engine.args` and `engine.command`.
    pub fn of(plan: &Plan) -> Self {
        let env = plan.engine.env.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let words: Vec<&str> = plan.engine.command.iter().chain(&plan.engine.args).map(String::as_str).collect();
        Self::among(env, &words)
    }

    /// Those among environment variables, by name and value, and the words of a command line.
    pub fn among<'t>(env: impl IntoIterator<Item = (&'t str, &'t str)>, words: &[&str]) -> Self {
        let env = env.into_iter().filter(|(name, _)| is_secret(name)).map(|(_, value)| value.to_owned());
        let args = words.iter().enumerate().filter_map(|(i, word)| {
            let flag = word.strip_prefix("--")?;
            match flag.split_once('=') {
                Some((name, value)) => is_secret(name).then(|| value.to_owned()),
                None => is_secret(flag).then(|| words.get(i + 1).map(|value| (*value).to_owned()))?,
            }
        });
        Self::new(env.chain(args))
    }

    /// These and others.
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text without them.
    pub fn redact(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret, REDACTED))
    }

    /// The plan as it may be written down.
    pub fn redact_plan(&self, plan: &Plan) -> Plan {
        let mut plan = plan.clone();
        let words = plan.engine.command.iter_mut().chain(&mut plan.engine.args).chain(plan.engine.env.values_mut());
        words.for_each(|word| *word = self.redact(word));
        plan
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    NAMES.iter().any(|n| name.contains(n)) && !INNOCENT.iter().any(|i| name.contains(i))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_secrets_from_counts() {
        assert!(is_secret("HF_TOKEN") && is_secret("api-key") && is_secret("AWS_SECRET_ACCESS_KEY"));
        assert!(!is_secret("max-num-batched-tokens") && !is_secret("tokenizer-mode"));
    }

    #[test]
    fn a_plan_is_written_down_without_its_secrets() {
        let text = "[slo]\nttft_p99 = \"1s\"\n[engine]\nkind = \"vllm\"\ncommand = [\"vllm\", \"serve\", \"m\"]\n\
            args = [\"--api-key\", \"sk-1234\", \"--max-model-len\", \"4096\"]\nenv = { HF_TOKEN = \"hf_5678\" }\n\
            [workload]\nkind = \"random\"\ninput_tokens = 8\noutput_tokens = 8\n\
            [parameters]\nmax-num-seqs = { values = [8, 16], default = 8 }\n";
        let plan = crate::settings::parse("space.toml", text).unwrap();
        let secrets = Secrets::of(&plan);
        let written = serde_json::to_string(&secrets.redact_plan(&plan)).unwrap();
        assert!(!written.contains("sk-1234") && !written.contains("hf_5678"), "{written}");
        assert!(written.contains("4096") && written.contains("HF_TOKEN"));
    }
}
