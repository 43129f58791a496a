//! The fields of a request's body, read as leniently as pydantic reads them, and with its complaints.

use serde_json::{Map, Value};

use super::refusal::Refusal;

pub(super) struct Body(Map<String, Value>);

impl Body {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Refusal> {
        match serde_json::from_slice::<Value>(body) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(other) => {
                let says = "Input should be a valid dictionary or object to extract fields from";
                Err(Refusal::invalid("model_attributes_type", "body", says, &other))
            }
            Err(_) => Err(Refusal::no_json()),
        }
    }

    /// The object in a field; an empty one where there is none.
    pub(super) fn inner(&self, name: &str) -> Self {
        Self(self.get(name).and_then(Value::as_object).cloned().unwrap_or_default())
    }

    /// A field that is there, and not null.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn required(&self, name: &str) -> Result<&Value, Refusal> {
        let all = || Value::Object(self.0.clone());
        self.0.get(name).ok_or_else(|| Refusal::invalid("missing", &format!("body.{name}"), "Field required", &all()))
    }

    /// A whole number, as `5`, `5.0` or `"5"`.
    pub(super) fn integer(&self, name: &str) -> Result<Option<i64>, Refusal> {
        self.typed(name, |value| match value {
            Value::String(text) => text
                .trim()
                .parse()
                .map_err(|_| ("int_parsing", "Input should be a valid integer, unable to parse string as an integer")),
            Value::Bool(yes) => Ok(i64::from(*yes)),
            Value::Number(number) => {
                let whole = |n: f64| (n.fract() == 0.0 && n.abs() < 1e15).then_some(n as i64);
                number
                    .as_i64()
                    .or_else(|| number.as_f64().and_then(whole))
                    .ok_or(("int_from_float", "Input should be a valid integer, got a number with a fractional part"))
            }
            _ => Err(("int_type", "Input should be a valid integer")),
        })
    }

    /// False where it is absent.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Refusal> {
        let flag = self.typed(name, |value| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_lowercase);
            match (value, text.as_str()) {
                (Value::Array(_) | Value::Object(_), _) => Err(("bool_type", "Input should be a valid boolean")),
                (_, "true" | "1" | "1.0" | "yes" | "y" | "on" | "t") => Ok(true),
                (_, "false" | "0" | "0.0" | "no" | "n" | "off" | "f") => Ok(false),
                _ => Err(("bool_parsing", "Input should be a valid boolean, unable to interpret input")),
            }
        });
        flag.map(|flag| flag.unwrap_or(false))
    }

    fn typed<T>(
        &self,
        name: &str,
        read: impl Fn(&Value) -> Result<T, (&'static str, &'static str)>,
    ) -> Result<Option<T>, Refusal> {
        let wrong = |value: &Value, (kind, says)| Refusal::invalid(kind, &format!("body.{name}"), says, value);
        self.get(name).map(|value| read(value).map_err(|problem| wrong(value, problem))).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_leniently() {
        let body = Body::parse(br#"{"a":5.0,"b":"5","c":"yes","e":null,"f":1}"#).unwrap();
        assert_eq!((body.integer("a").unwrap(), body.integer("b").unwrap()), (Some(5), Some(5)));
        assert!(body.flag("c").unwrap() && body.flag("f").unwrap() && !body.flag("e").unwrap());
        assert_eq!(body.integer("e").unwrap(), None);
        assert!(body.get("e").is_none());
    }

    #[test]
    fn what_cannot_be_read_is_told_as_pydantic_tells_it() {
        let body = Body::parse(br#"{"a":"many","b":2.5,"c":[1,2],"d":"maybe"}"#).unwrap();
        let parts = |refusal: Refusal| (refusal.param.unwrap(), refusal.message);
        assert_eq!(
            parts(body.integer("a").unwrap_err()),
            (
                "body.a".to_owned(),
                "1 validation error:\n  {'type': 'int_parsing', 'loc': 'body.a', 'msg': 'Input should be a valid integer, unable to \
                 parse string as an integer', 'input': 'many'}"
                    .to_owned()
            )
        );
        assert!(
            body.integer("b").unwrap_err().message.contains("got a number with a fractional part', 'input': '2.5'}")
        );
        assert!(body.integer("c").unwrap_err().message.contains("'input': '<list of 2 items>'}"));
        assert!(body.flag("d").unwrap_err().message.contains("bool_parsing"));
        assert!(body.required("x").unwrap_err().message.contains("'Field required', 'input': '<dict of 4 items>'"));
        assert!(Body::parse(b"[1]").is_err_and(|r| r.message.contains("model_attributes_type")));
        assert!(Body::parse(b"x").is_err_and(|r| r.message.ends_with("'ctx': {'error': 'Expecting value'}}")));
    }
}
