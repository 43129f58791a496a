use super::entry::{Conclusion, Cost, Entry, FORMAT, Header, RECORDS_FORMAT, Record};
use crate::rig::Spawned;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Journal {
    pub entries: Vec<Entry>,
    /// Bytes of whole lines; the rest is a torn last line.
    pub whole_bytes: u64,
}

/// Why a journal cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error("line {line} is damaged: {what}")]
    Damaged { line: usize, what: String },
    #[error("its {what} is {found}, and this program knows {known}; use the version of autotune that wrote it")]
    Format { what: &'static str, found: u64, known: u32 },
}

/// Refuses a header with an unknown format before its other fields are parsed.
fn known_format(first: &[u8]) -> Result<(), ReadError> {
    let line: serde_json::Value = serde_json::from_slice(first).unwrap_or_default();
    let header = &line["record"]["header"];
    for (key, what, known) in
        [("format", "format", FORMAT), ("records_format", "format of request files", RECORDS_FORMAT)]
    {
        if let Some(found) = header[key].as_u64().filter(|found| !(1..=u64::from(known)).contains(found)) {
            return Err(ReadError::Format { what, found, known });
        }
    }
    Ok(())
}

pub fn read(bytes: &[u8]) -> Result<Journal, ReadError> {
    let mut journal = Journal::default();
    known_format(bytes.split(|b| *b == b'\n').next().unwrap_or_default())?;
    let mut lines = bytes.split_inclusive(|b| *b == b'\n').enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        // A kill tears at most the last write. A last line without its line feed does not count.
        let last = lines.peek().is_none();
        match serde_json::from_slice::<Entry>(line) {
            Ok(entry) if line.ends_with(b"\n") => {
                journal.entries.push(entry);
                journal.whole_bytes += line.len() as u64;
            }
            Ok(_) => {}
            Err(_) if last && !line.ends_with(b"\n") => {}
            Err(error) => return Err(ReadError::Damaged { line: number + 1, what: error.to_string() }),
        }
    }
    Ok(journal)
}

impl Journal {
    pub fn header(&self) -> Option<&Header> {
        match &self.entries.first()?.record {
            Record::Header(header) => Some(header),
            _ => None,
        }
    }

    /// The answer, once there is one.
    pub fn conclusion(&self) -> Option<&Conclusion> {
        self.entries.iter().rev().find_map(|e| match &e.record {
            Record::Concluded(conclusion) => Some(&**conclusion),
            _ => None,
        })
    }

    /// Processes that were started and not known to have been stopped.
    pub fn unstopped(&self) -> Vec<&Spawned> {
        let mut open: Vec<&Spawned> = Vec::new();
        for entry in &self.entries {
            match &entry.record {
                Record::Spawned { spawned, .. } => open.push(spawned),
                Record::Stopped { .. } | Record::NotReady { .. } | Record::Broken { .. } => open.clear(),
                _ => {}
            }
        }
        open
    }

    /// What the records say was spent: launches, probes, stops.
    pub fn cost(&self) -> Cost {
        Cost::of(&self.entries)
    }
}

impl Cost {
    /// What these records say was spent.
    pub fn of(entries: &[Entry]) -> Self {
        let mut cost = Self::default();
        for entry in entries {
            match &entry.record {
                Record::Launching { .. } => cost.launches += 1,
                Record::Ready { ready, .. } => {
                    // A process that ran already was not launched.
                    cost.launches -= u32::from(ready.process.altered);
                    cost.engine_seconds += ready.took;
                }
                Record::NotReady { failure, .. } => cost.engine_seconds += failure.took,
                Record::Probed { took, .. } => {
                    cost.probes += 1;
                    cost.engine_seconds += *took;
                }
                Record::Broken { failure, .. } => {
                    cost.probes += 1;
                    cost.engine_seconds += failure.took;
                }
                Record::Stopped { took, .. } => cost.engine_seconds += *took,
                _ => {}
            }
        }
        cost
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use autotune_records::units::Seconds;

    fn line(trial: u32, took: f64) -> String {
        let entry = Entry { at: 1.5, record: Record::Stopped { trial, took: Seconds(took) } };
        format!("{}\n", serde_json::to_string(&entry).unwrap())
    }

    #[test]
    fn a_torn_last_line_is_dropped_and_a_damaged_earlier_one_is_an_error() {
        let text = line(1, 0.5) + &line(2, 0.25);
        let whole = read(text.as_bytes()).unwrap();
        assert_eq!((whole.entries.len(), whole.whole_bytes), (2, text.len() as u64));
        for cut in line(1, 0.5).len()..text.len() {
            let torn = read(&text.as_bytes()[..cut]).unwrap();
            assert_eq!((torn.entries.len(), torn.whole_bytes), (1, line(1, 0.5).len() as u64), "cut at {cut}");
        }
        let damaged = format!("{}garbage\n{}", line(1, 0.5), line(2, 0.5));
        let error = read(damaged.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("line 2 is damaged: "), "{error}");
        assert_eq!(read(b"").unwrap(), Journal::default());
    }

    #[test]
    fn a_format_that_is_not_known_is_refused_by_its_number() {
        for (formats, part) in [
            (r#""format":7,"records_format":2"#, "format is 7"),
            (r#""format":1,"records_format":3"#, "format of request files is 3"),
            (r#""format":0,"records_format":2"#, "format is 0"),
        ] {
            let text = format!("{{\"at\":1.0,\"record\":{{\"header\":{{{formats},\"more\":[]}}}}}}\n");
            let error = read(text.as_bytes()).unwrap_err();
            assert!(matches!(error, ReadError::Format { .. }) && error.to_string().contains(part), "{error}");
        }
    }

    proptest! {
        #[test]
        fn floats_come_back_as_they_were(took in proptest::num::f64::NORMAL) {
            let journal = read(line(7, took).as_bytes()).unwrap();
            prop_assert_eq!(&journal.entries[0].record, &Record::Stopped { trial: 7, took: Seconds(took) });
        }
    }

    #[test]
    fn fuzz_journals() {
        let whole = include_str!("../../../../tests/data/h200-turns/journal.jsonl");
        let lines: Vec<&str> = whole.lines().collect();
        let valid = lines[1..].chunks(4).map(|some| format!("{}\n{}\n", lines[0], some.join("\n")));
        autotune_fuzz::fuzz(8, valid, |input, _| {
            if let Ok(journal) = read(input) {
                assert!(journal.whole_bytes <= input.len() as u64);
                let _ = (journal.header(), journal.conclusion(), journal.unstopped(), journal.cost());
            }
        });
    }
}
