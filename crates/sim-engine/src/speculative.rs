//! `--speculative-config`: vLLM's JSON, and its complaints about it.

use serde_json::{Map, Value};

/// What the flag holds; absent for `None` and for nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Speculative(Option<Map<String, Value>>);

/// Keys that the simulation knows. Those of the look-up say where a draft comes from, which a model without words cannot tell.
const KEYS: [&str; 4] = ["method", "num_speculative_tokens", "prompt_lookup_max", "prompt_lookup_min"];

impl Speculative {
    /// Reads the flag's value.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() || text == "None" {
            return Ok(Self(None));
        }
        match serde_json::from_str(text) {
            Ok(Value::Object(fields)) => Ok(Self(Some(fields))),
            _ => Err(format!("Value {text} cannot be converted to <function loads at 0x7f0000000000>.")),
        }
    }

    pub(super) fn json(&self) -> Option<Value> {
        self.0.clone().map(Value::Object)
    }

    /// Tokens of a draft, if there are drafts.
    pub(super) fn tokens(&self) -> Option<u32> {
        let tokens = self.0.as_ref()?.get("num_speculative_tokens")?.as_u64()?;
        u32::try_from(tokens).ok().filter(|tokens| *tokens > 0)
    }

    /// vLLM's complaint about it, if it has one; pydantic's text below the class.
    pub(super) fn problem(&self) -> Option<String> {
        let fields = self.0.as_ref()?;
        let value_error = |text: &str| format!("  Value error, {text} [type=value_error]");
        if let Some(key) = fields.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Some(format!("{key}\n  Unexpected keyword argument [type=unexpected_keyword_argument]"));
        }
        let tokens = match fields.get("num_speculative_tokens") {
            None | Some(Value::Null) => {
                return Some(value_error(
                    "num_speculative_tokens must be provided with speculative model unless the draft model config contains an \
                     n_predict parameter.",
                ));
            }
            Some(tokens) => tokens,
        };
        match fields.get("method").map(|method| method.as_str().unwrap_or_default()) {
            Some("ngram") => {}
            None => return Some(value_error("num_speculative_tokens was provided but without speculative model.")),
            Some(other) => {
                return Some(value_error(&format!(
                    "the simulated engine speculates with method ngram alone, not '{other}'"
                )));
            }
        }
        let wrong = if tokens.as_i64().is_none() {
            Some(("Input should be a valid integer", "int_type"))
        } else {
            self.tokens().is_none().then_some(("Input should be greater than 0", "greater_than"))
        };
        wrong.map(|(says, kind)| format!("num_speculative_tokens\n  {says} [type={kind}, input_value={tokens}]"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drafts_have_a_length_and_a_method() {
        let ngram =
            Speculative::parse(r#"{"method":"ngram","num_speculative_tokens":4,"prompt_lookup_max":4}"#).unwrap();
        assert_eq!((ngram.problem(), ngram.tokens()), (None, Some(4)));
        let none = Speculative::parse("None").unwrap();
        assert_eq!((none.problem(), none.tokens(), none.json()), (None, None, None));
        assert!(Speculative::parse("[4]").is_err());
        for (json, says) in [
            (r#"{"method":"ngram"}"#, "num_speculative_tokens must be provided"),
            (r#"{"num_speculative_tokens":4}"#, "without speculative model"),
            (r#"{"method":"ngram","num_speculative_tokens":0}"#, "greater than 0"),
            (r#"{"method":"ngram","num_speculative_tokens":"x"}"#, "valid integer"),
            (r#"{"method":"eagle","num_speculative_tokens":4}"#, "method ngram alone, not 'eagle'"),
            (r#"{"method":"ngram","num_speculative_tokens":4,"tree":1}"#, "tree\n  Unexpected keyword argument"),
        ] {
            let problem = Speculative::parse(json).unwrap().problem().unwrap();
            assert!(problem.contains(says), "{json}: {problem}");
        }
    }
}
