//! The file behind a workload: read once, kept as texts and lengths, known by a digest. The only module of this crate that opens files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use autotune_numerics::seeds::{FNV_OFFSET, fnv};

use super::parsed::{Mistake, Request};
use super::planned::Prompt;
use super::trace::TraceEntry;
use super::{jsonl, sharegpt, trace};
use autotune_plan::settings::{WorkloadKind, WorkloadPlan};

/// Texts that suffice to measure tokens per character.
const SAMPLE: usize = 64;

/// What was read of a workload's file; nothing, where the workload has none. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Corpus {
    pub(super) items: Items,
    left_out: BTreeMap<&'static str, usize>,
    digest: Option<u64>,
}

/// The usable entries of a file.
#[derive(Clone, Debug, Default)]
pub(super) enum Items {
    #[default]
    None,
    Requests(Arc<[Request]>),
    Steps(Arc<[TraceEntry]>),
}

/// Why a workload's file is no use.
#[derive(Debug, thiserror::Error)]
pub enum CorpusError {
    #[error("failed to read the workload's file {path}: {source}\n  = hint: a relative `workload.file` counts from the space file's folder", path = path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path}:{line}: {what}\n  = hint: {hint}", path = path.display())]
    Line { path: PathBuf, line: usize, what: String, hint: &'static str },
    #[error("{path} holds no request that can be used{left_out}\n  = hint: check that the file has the format of `workload.kind`, or of `--dataset`", path = path.display())]
    Empty {
        path: PathBuf,
        /// What was left out, after a colon.
        left_out: String,
    },
}

impl Corpus {
    /// Reads the file of a plan, if it has one. Its relative path counts from `base`, the folder of the space file.
    pub fn read(plan: &WorkloadPlan, base: &Path) -> Result<Self, CorpusError> {
        let file = match &plan.kind {
            WorkloadKind::Random(_) | WorkloadKind::Conversations(_) => return Ok(Self::default()),
            WorkloadKind::Sharegpt(kind) => &kind.file,
            WorkloadKind::Jsonl(kind) => &kind.file,
            WorkloadKind::Trace(kind) => &kind.file,
        };
        let path = base.join(file);
        let opened = File::open(&path).map_err(|source| CorpusError::Read { path: path.clone(), source })?;
        let corpus = Self::parse(plan, opened).map_err(|mistake| match mistake {
            Mistake::Read(source) => CorpusError::Read { path: path.clone(), source },
            Mistake::Line { line, what, hint } => CorpusError::Line { path: path.clone(), line, what, hint },
        })?;
        if corpus.items() == 0 {
            let left_out = corpus.left_out().map_or(String::new(), |left_out| format!(": {left_out}"));
            return Err(CorpusError::Empty { path, left_out });
        }
        Ok(corpus)
    }

    /// Parses the bytes of a file as the plan's kind of workload.
    pub(super) fn parse(plan: &WorkloadPlan, bytes: impl Read) -> Result<Self, Mistake> {
        let mut bytes = BufReader::new(Digested { bytes, digest: FNV_OFFSET });
        let (items, left_out) = match &plan.kind {
            WorkloadKind::Random(_) | WorkloadKind::Conversations(_) => return Ok(Self::default()),
            WorkloadKind::Sharegpt(kind) => {
                let parsed = sharegpt::parse(&mut bytes, plan.endpoint, (kind.output_tokens.is_none(), kind.turns))?;
                (Items::Requests(parsed.items.into()), parsed.left_out)
            }
            WorkloadKind::Jsonl(kind) => {
                let parsed = jsonl::parse(&mut bytes, plan.endpoint, kind.output_tokens.is_none())?;
                (Items::Requests(parsed.items.into()), parsed.left_out)
            }
            WorkloadKind::Trace(kind) => {
                let parsed = trace::parse(&mut bytes, kind.time_unit.into())?;
                (Items::Steps(parsed.items.into()), parsed.left_out)
            }
        };
        Ok(Self { items, left_out, digest: Some(bytes.get_ref().digest) })
    }

    /// How many requests there are; 0 for a workload without a file.
    pub fn items(&self) -> usize {
        match &self.items {
            Items::None => 0,
            Items::Requests(requests) => requests.len(),
            Items::Steps(steps) => steps.len(),
        }
    }

    /// What could not be used and why, as a sentence's end such as "312 left out (300 without an answer, 12 with an empty
    /// prompt)"; `None` where everything could.
    pub fn left_out(&self) -> Option<String> {
        let reasons: Vec<String> = self.left_out.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        let all: usize = self.left_out.values().sum();
        (all > 0).then(|| format!("{all} left out ({})", reasons.join(", ")))
    }

    /// A number that changes with the file's bytes and is the same on every machine; `None` without a file.
    pub fn digest(&self) -> Option<u64> {
        self.digest
    }

    /// The time between a trace's first and last entry; `None` for other workloads.
    pub fn span(&self) -> Option<autotune_records::units::Seconds> {
        let Items::Steps(steps) = &self.items else { return None };
        Some(steps.last()?.at - steps.first()?.at)
    }

    /// Texts from all over the file, for a measurement of tokens to characters; empty if it has no texts.
    pub fn sample(&self) -> Vec<&str> {
        let Items::Requests(requests) = &self.items else { return Vec::new() };
        let every = requests.len().div_ceil(SAMPLE).max(1);
        let texts = requests.iter().step_by(every).filter_map(|request| match &request.prompt {
            Prompt::Text(text) => Some(text.as_str()),
            Prompt::Messages(messages) => messages.last().map(|message| message.content.as_str()),
            Prompt::Tokens(_) => None,
        });
        texts.filter(|text| !text.is_empty()).collect()
    }
}

/// A reader that also computes the digest of what is read.
struct Digested<R> {
    bytes: R,
    digest: u64,
}

impl<R: Read> Read for Digested<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.bytes.read(buffer)?;
        self.digest = fnv(self.digest, &buffer[..count]);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{jsonl, sharegpt, trace};
    use super::*;

    const TWO: &str = "{\"prompt\": \"a b\", \"output_tokens\": 3}\n{\"prompt\": \"c\", \"output_tokens\": 4}\n";

    #[test]
    fn files_are_found_beside_the_space_file_and_known_by_their_bytes() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("x.jsonl"), TWO).unwrap();
        let corpus = Corpus::read(&jsonl(), folder.path()).unwrap();
        assert_eq!((corpus.items(), corpus.left_out()), (2, None));
        // The digest is part of journals: it must never change.
        assert_eq!(corpus.digest(), Some(fnv(FNV_OFFSET, TWO.as_bytes())));
        assert_eq!(fnv(FNV_OFFSET, b"a"), 0xaf63_dc4c_8601_ec8c);
        std::fs::write(folder.path().join("x.jsonl"), TWO.replace('c', "d")).unwrap();
        assert_ne!(Corpus::read(&jsonl(), folder.path()).unwrap().digest(), corpus.digest());
        assert_eq!(corpus.sample(), ["a b", "c"]);
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_with_its_place_and_a_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let said = |plan: &WorkloadPlan| Corpus::read(plan, folder.path()).unwrap_err().to_string();
        assert!(said(&jsonl()).contains("x.jsonl") && said(&jsonl()).contains("space file's folder"));
        std::fs::write(folder.path().join("x.jsonl"), format!("{TWO}{{\"prompt\": 3}}\n")).unwrap();
        assert!(said(&jsonl()).contains("x.jsonl:3: ") && said(&jsonl()).contains("= hint: "), "{}", said(&jsonl()));
        std::fs::write(folder.path().join("x.jsonl"), "").unwrap();
        assert!(said(&trace()).contains("holds no request"), "{}", said(&trace()));
        std::fs::write(folder.path().join("x.jsonl"), "[{}, {}]").unwrap();
        assert!(said(&sharegpt()).contains("2 left out (2 "), "{}", said(&sharegpt()));
    }
}
