//! Where a manifest is not what was measured: then the certified rate is not its own.

use std::ops::Range;

use super::flags::{Setting, is_placeholder};
use super::known::{model_of, value_of};
use super::locate::Located;
use super::source::Document;
use super::yaml::{Node, Path};
use crate::problems::Problem;
use crate::report::Outcome;
use crate::space::Value;
use crate::units::Seconds;

/// Every contradiction of one engine to what was measured, as a warning.
pub fn contradictions(outcome: &Outcome, document: Document<'_>, engine: &Located<'_>) -> Vec<Problem> {
    let seen = Seen { document, engine, outcome };
    [seen.image(), seen.model(), seen.gpus(), seen.start(), seen.memory()]
        .into_iter()
        .flatten()
        .chain(seen.fixed_arguments())
        .chain(seen.overruled())
        .chain(seen.switched_off())
        .collect()
}

struct Seen<'a, 'm> {
    document: Document<'m>,
    engine: &'a Located<'m>,
    outcome: &'a Outcome,
}

impl<'m> Seen<'_, 'm> {
    fn node(&self, path: Option<&Path>) -> Option<&'m Node> {
        self.document.root().at(path?).filter(|node| !node.is_nothing())
    }

    fn text(&self, path: Option<&Path>) -> Option<(&'m str, Range<usize>)> {
        let node = self.node(path)?;
        let text = node.text().filter(|_| !is_placeholder(self.document.source.raw(node)))?;
        Some((text, node.span.clone()))
    }

    /// Where the engine's arguments stand.
    fn arguments(&self) -> Range<usize> {
        self.engine.arguments.first().map_or(0..0, |place| place.span(0))
    }

    fn image(&self) -> Option<Problem> {
        let (image, span) = self.text(self.engine.location.image.as_ref())?;
        if image.contains('@') {
            return None;
        }
        let (name, tag) = match image.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
            _ => (image, None),
        };
        let moves = || {
            let says = "the image's tag moves: another engine than the measured one may start".to_owned();
            let hint = match &self.outcome.engine_version {
                Some(version) => format!("pin it to the version that was measured ({version}), best by its digest"),
                None => "pin it to the version that was measured, best by its digest".to_owned(),
            };
            Problem::new(&span, says, "here", hint)
        };
        let tag = match tag {
            None | Some("latest" | "nightly" | "main" | "stable") => return Some(moves()),
            Some(tag) if tag.starts_with("latest-") || tag.ends_with("-latest") => return Some(moves()),
            Some(tag) => tag,
        };
        // Runtimes of Dynamo count their own versions.
        let measured = self.outcome.engine_version.as_deref()?;
        let comparable = name.ends_with("vllm-openai") || name.ends_with("/vllm");
        let version = tag.trim_start_matches('v').split(['-', '+', '_']).next()?;
        let is_version = version.split('.').count() > 1 && version.split('.').all(|p| p.parse::<u32>().is_ok());
        let same = measured == version
            || measured.starts_with(&format!("{version}."))
            || measured.starts_with(&format!("{version}+"));
        (comparable && is_version && !same && !self.outcome.simulated).then(|| {
            let says = format!("this image is of version {version}, and {measured} was measured");
            Problem::new(&span, says, "another version", "deploy the version that was measured, or measure this one")
        })
    }

    fn model(&self) -> Option<Problem> {
        let measured = self.outcome.model.as_deref().filter(|_| !self.outcome.simulated)?;
        let served = value_of(&self.engine.words, "served-model-name");
        let there = model_of(&self.engine.words)
            .or_else(|| self.text(self.engine.location.model.as_ref()).map(|(text, _)| text))
            .filter(|model| !is_placeholder(model))?;
        let last = |name: &str| {
            let name = name.trim_end_matches('/');
            name.rsplit(['/', ':']).next().unwrap_or(name).to_ascii_lowercase()
        };
        let same = last(there) == last(measured) || served.is_some_and(|name| last(name) == last(measured));
        (!same).then(|| {
            let says = format!("this manifest serves {there}, and {measured} was measured");
            Problem::new(&self.arguments(), says, "these arguments", "measure with this model")
        })
    }

    fn gpus(&self) -> Option<Problem> {
        // A machine may have more GPUs than the engine used; what was fixed for every trial says how many it did.
        let parallel = |flag: &str| value_of(&self.outcome.fixed_arguments, flag).map_or(Ok(1), str::parse::<usize>);
        let used = parallel("tensor-parallel-size").ok()?
            * parallel("pipeline-parallel-size").ok()?
            * parallel("data-parallel-size").ok()?;
        let (text, span) = self.text(self.engine.location.gpus.as_ref())?;
        let there = text.parse::<usize>().ok()?;
        (!self.outcome.gpus.is_empty() && there != used).then(|| {
            let says = format!("this manifest asks for {there} GPUs, and the engine that was measured used {used}");
            Problem::new(&span, says, "another number", "measure on as many GPUs as the deployment gets")
        })
    }

    /// Whether Kubernetes ends the engine before it serves.
    fn start(&self) -> Option<Problem> {
        let start = self.outcome.slowest_start?;
        let probes = &self.engine.location.probes;
        let (kind, at) = ["startupProbe", "livenessProbe"]
            .into_iter()
            .map(|kind| (kind, probes.key(kind)))
            .find(|(_, at)| self.document.root().at(at).is_some_and(|probe| !probe.is_null()))?;
        let number = |key: &str, default: f64| match self.document.root().at(&at.key(key)) {
            Some(node) => node.text().and_then(|text| text.parse::<f64>().ok()),
            None => Some(default),
        };
        // Kubernetes' own defaults.
        let allowed =
            number("initialDelaySeconds", 0.0)? + number("periodSeconds", 10.0)? * number("failureThreshold", 3.0)?;
        (allowed < start.0).then(|| {
            let span = self.document.root().at(&at).map_or(0..0, |node| node.span.start..node.span.start);
            let says = format!(
                "the {kind} gives the engine {}, and it took {start} to serve in the measurement",
                Seconds(allowed)
            );
            let wanted = (start.0 * 1.5).ceil();
            Problem::new(
                &span,
                says,
                "here",
                format!("allow {wanted:.0} s: initialDelaySeconds + periodSeconds x failureThreshold"),
            )
        })
    }

    fn memory(&self) -> Option<Problem> {
        let (text, span) = self.text(self.engine.location.memory.as_ref())?;
        let (limit, used) = (quantity(text)?, self.outcome.host_memory? as f64);
        (limit < used).then(|| {
            let gib = used / f64::from(1_u32 << 30);
            let says = format!("the limit of memory is {text}, and the engine held {gib:.1} GiB in the measurement");
            Problem::new(&span, says, "less than was used", "raise it; page cache for the weights comes on top")
        })
    }

    /// The words of the keys, then every word of every place, short names of flags in full. The engine takes the last of a flag.
    fn words(&self) -> Vec<String> {
        const SHORT: [(&str, &str); 5] = [
            ("-tp", "--tensor-parallel-size"),
            ("-pp", "--pipeline-parallel-size"),
            ("-dp", "--data-parallel-size"),
            ("-q", "--quantization"),
            ("-O", "--compilation-config"),
        ];
        let of_places = self.engine.arguments.iter().flat_map(|place| place.seen()).map(|word| word.text.to_owned());
        let in_full = |word: String| {
            let (name, value) = word.split_once('=').map_or((word.as_str(), None), |(name, value)| (name, Some(value)));
            let known = SHORT.iter().find(|(short, _)| *short == name);
            let value = value.map_or_else(String::new, |value| format!("={value}"));
            known.map(|(_, long)| format!("{long}{value}")).unwrap_or(word)
        };
        let location = &self.engine.location;
        let of_keys = location.keys.words(self.document.root().at(&location.keys_at), location.off);
        of_keys.into_iter().chain(self.engine.words.iter().cloned()).chain(of_places).map(in_full).collect()
    }

    /// Switches that the kind turns off, and that the measurement left alone.
    fn switched_off(&self) -> Vec<Problem> {
        let (words, location) = (self.words(), &self.engine.location);
        let best = self.outcome.best.as_ref();
        let is_tuned = |flag: &str| best.is_some_and(|best| best.parameters.0.contains_key(flag));
        let says = |flag: &str| {
            let on = Setting { name: flag.to_owned(), value: Value::Bool(true) };
            let key = location.keys.of(None, &on)?.at(&location.keys_at);
            let map = key.parent().and_then(|(above, _)| self.document.root().at(&above));
            let span = map.map_or(0..0, |map| map.span.start..map.span.start);
            let hint = format!("set {key} to true, or measure with --no-{flag}");
            let says = format!("the engine gets --no-{flag} here, and was measured without");
            Some(Problem::new(&span, says, "here", hint))
        };
        let off = location.off.iter().filter(|flag| {
            let measured = switch(&self.outcome.fixed_arguments, flag);
            switch(&words, flag) == Some(false) && measured.is_none() && !is_tuned(flag)
        });
        off.filter_map(|flag| says(flag)).collect()
    }

    /// Arguments here that decide the size of the KV cache, whatever the share of memory is.
    fn overruled(&self) -> Vec<Problem> {
        let best = self.outcome.best.as_ref();
        if !best.is_some_and(|best| best.parameters.0.contains_key("gpu-memory-utilization")) {
            return Vec::new();
        }
        let words = self.words();
        let stands =
            |flag: &&str| value_of(&words, flag).is_some() && value_of(&self.outcome.fixed_arguments, flag).is_none();
        let says = |flag: &str| {
            let says =
                format!("--{flag} decides the size of the KV cache here, and --gpu-memory-utilization no longer does");
            Problem::new(&self.arguments(), says, "these arguments", format!("delete --{flag}, or measure with it"))
        };
        ["kv-cache-memory-bytes", "num-gpu-blocks-override"]
            .iter()
            .filter(|flag| stands(flag))
            .map(|flag| says(flag))
            .collect()
    }

    /// Arguments that were fixed in every trial and say something else here.
    fn fixed_arguments(&self) -> Vec<Problem> {
        /// What belongs to the place where an engine runs.
        const OF_THE_PLACE: [&str; 10] = [
            "model",
            "model-path",
            "host",
            "port",
            "served-model-name",
            "api-key",
            "profile",
            "uvicorn-log-level",
            "download-dir",
            "seed",
        ];
        let fixed = &self.outcome.fixed_arguments;
        let flags = fixed.iter().enumerate().filter_map(|(i, word)| {
            let (name, glued) = word
                .strip_prefix("--")?
                .split_once('=')
                .map_or_else(|| (word.trim_start_matches('-'), None), |(name, value)| (name, Some(value)));
            let next = fixed.get(i + 1).filter(|next| !next.starts_with("--")).map(String::as_str);
            Some((name.replace('_', "-"), glued.or(next)))
        });
        let told = |(name, value): &(String, Option<&str>)| {
            !OF_THE_PLACE.contains(&name.as_str()) && value.is_none_or(|v| v != crate::settings::REDACTED)
        };
        let words = self.words();
        let differs = |(name, value): (String, Option<&str>)| {
            let stands = words.iter().any(|w| {
                w.strip_prefix("--").is_some_and(|w| w.split('=').next().unwrap_or(w).replace('_', "-") == name)
            });
            let measured = value.map_or_else(|| format!("--{name}"), |value| format!("--{name} {value}"));
            let there = value_of(&words, &name).filter(|_| value.is_some());
            let says = match (stands, there, value) {
                (false, ..) => format!("it was measured with {measured}, which is not here"),
                (true, Some(there), Some(value)) if !same_value(there, value) && !is_placeholder(there) => {
                    format!("it was measured with {measured}, and here is {there}")
                }
                _ => return None,
            };
            Some(Problem::new(
                &self.arguments(),
                says,
                "these arguments",
                "the certified rate holds with that argument alone",
            ))
        };
        flags.filter(told).filter_map(differs).collect()
    }
}

/// Whether the last word that names a switch turns it on.
fn switch(words: &[String], flag: &str) -> Option<bool> {
    words.iter().rev().filter_map(|word| word.strip_prefix("--")).find_map(|word| match word.replace('_', "-") {
        on if on == flag => Some(true),
        off => (off.strip_prefix("no-") == Some(flag)).then_some(false),
    })
}

/// Whether two values of a flag are the same: 0.90 is 0.9.
fn same_value(a: &str, b: &str) -> bool {
    let numbers = || Some(a.parse::<f64>().ok()?.total_cmp(&b.parse::<f64>().ok()?).is_eq());
    a == b || numbers() == Some(true)
}

/// A quantity of Kubernetes in bytes: `64Gi`, `500M`, `1e9`.
fn quantity(text: &str) -> Option<f64> {
    const UNITS: [(&str, f64); 12] = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("Pi", 1_125_899_906_842_624.0),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
        ("m", 1e-3),
        ("", 1.0),
    ];
    UNITS.iter().find_map(|(unit, factor)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_of_kubernetes() {
        assert_eq!(quantity("64Gi"), Some(64.0 * 1_073_741_824.0));
        assert_eq!(quantity("500M"), Some(5e8));
        assert_eq!(quantity("1e9"), Some(1e9));
        assert_eq!(quantity("lots"), None);
    }
}
