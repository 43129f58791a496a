//! Reads request files back: version 2, and the older form without what version 2 added.

use std::io;

use csv::StringRecord;

use super::record::{ErrorClass, RequestRecord};
use crate::units::{MOST_TOKENS, Seconds};

/// Why a request file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    /// It is no CSV, or the disk failed.
    #[error("{0}")]
    Csv(#[from] csv::Error),
    #[error("the column `{column}` is missing")]
    MissingColumn {
        /// Its name in version 2.
        column: &'static str,
    },
    #[error("line {line}: `{column}` cannot be `{value}`")]
    Value { line: u64, column: &'static str, value: String },
}

struct Columns {
    header: StringRecord,
}

impl Columns {
    fn place(&self, column: &str) -> Option<usize> {
        let old = match column {
            "tokens_in" => "n_in",
            "tokens_out" => "n_out",
            "error" => "err",
            _ => column,
        };
        self.header.iter().position(|name| name == column || name == old)
    }
}

struct Line<'a> {
    columns: &'a Columns,
    fields: &'a StringRecord,
    number: u64,
}

impl Line<'_> {
    /// The field, none where it is empty or there is no such column.
    fn text(&self, column: &str) -> Option<&str> {
        self.fields.get(self.columns.place(column)?).filter(|field| !field.is_empty())
    }

    fn read<T>(&self, column: &'static str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>, RecordsError> {
        let wrong = |value: &str| RecordsError::Value { line: self.number, column, value: value.to_owned() };
        self.text(column).map(|field| parse(field).ok_or_else(|| wrong(field))).transpose()
    }

    fn time(&self, column: &'static str) -> Result<Option<Seconds>, RecordsError> {
        self.read(column, |field| field.parse().ok().filter(|t: &f64| t.is_finite()).map(Seconds))
    }

    fn count(&self, column: &'static str) -> Result<Option<u32>, RecordsError> {
        self.read(column, |field| field.parse().ok())
    }

    fn tokens(&self, column: &'static str) -> Result<Option<u32>, RecordsError> {
        self.read(column, |field| field.parse().ok().filter(|tokens| *tokens <= MOST_TOKENS))
    }

    fn told<T>(&self, column: &'static str, value: Option<T>) -> Result<T, RecordsError> {
        value.ok_or_else(|| RecordsError::Value { line: self.number, column, value: String::new() })
    }

    fn record(&self, index: usize) -> Result<RequestRecord, RecordsError> {
        let (tokens_in, tokens_out) = (self.tokens("tokens_in")?, self.tokens("tokens_out")?);
        let gap = self.read("largest_gap", |field| field.parse::<f32>().ok())?;
        Ok(RequestRecord {
            id: self.count("id")?.unwrap_or(index as u32),
            due: self.told("due", self.time("due")?)?,
            sent: self.told("sent", self.time("sent")?)?,
            first: self.time("first")?,
            last: self.time("last")?,
            tokens_in,
            tokens_cached: self.tokens("tokens_cached")?,
            tokens_out,
            asked_out: self.tokens("asked_out")?.or(tokens_out).unwrap_or(0),
            asked_in: self.tokens("asked_in")?.or(tokens_in).unwrap_or(0),
            shared_in: self.tokens("shared_in")?.unwrap_or(0),
            error: self.read("error", ErrorClass::named)?,
            turn: self.count("conversation")?.zip(self.count("turn")?),
            why: None,
            gaps: gap.into_iter().collect(),
        })
    }
}

/// Reads records from CSV; columns are found by their names. Of the gaps, the file keeps the largest alone.
///
/// `due, sent, first, last, tokens_in, tokens_out, error` must be there; the last three may be called `n_in, n_out, err`, as in older files.
pub fn read_records(from: impl io::Read) -> Result<Vec<RequestRecord>, RecordsError> {
    let mut csv = csv::Reader::from_reader(from);
    let columns = Columns { header: csv.headers()?.clone() };
    for column in ["due", "sent", "first", "last", "tokens_in", "tokens_out", "error"] {
        columns.place(column).ok_or(RecordsError::MissingColumn { column })?;
    }
    let line = |(index, fields): (usize, Result<StringRecord, csv::Error>)| {
        let fields = fields?;
        let number = fields.position().map_or(0, csv::Position::line);
        Line { columns: &columns, fields: &fields, number }.record(index)
    };
    csv.records().enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::super::record::{as_kept, write_records};
    use super::*;

    fn record() -> RequestRecord {
        RequestRecord {
            sent: Seconds(1.5004),
            tokens_cached: Some(16),
            asked_out: 12,
            asked_in: 199,
            shared_in: 32,
            turn: Some((4, 1)),
            gaps: vec![0.25],
            ..RequestRecord::answered(3, 1.5, 1.75, 2.75, 200, 11)
        }
    }

    #[test]
    fn what_was_written_is_read_back() {
        let unanswered = RequestRecord { first: None, last: None, tokens_in: None, tokens_out: None, ..record() };
        let failed = ErrorClass::ALL.map(|class| RequestRecord {
            error: Some(class),
            turn: None,
            gaps: vec![],
            ..unanswered.clone()
        });
        let records = [vec![record()], failed.to_vec()].concat();
        let mut file = Vec::new();
        write_records(&records, &mut file).unwrap();
        assert_eq!(read_records(&*file).unwrap(), records);
    }

    #[test]
    fn whatever_a_kernel_stamps_is_read_back_as_it_is_kept() {
        // Whole nanoseconds, those half-way between two microseconds above all.
        let stamps = (0..4_000_u64).map(|i| Seconds((i * 7_919_500 + i % 3) as f64 / 1e9));
        let stamped = |at: Seconds| RequestRecord { due: at, sent: at, first: Some(at), last: Some(at), ..record() };
        let records: Vec<RequestRecord> = stamps.map(stamped).collect();
        let mut file = Vec::new();
        write_records(&records, &mut file).unwrap();
        let kept: Vec<RequestRecord> = records.iter().map(|r| stamped(as_kept(r.due))).collect();
        assert_eq!(read_records(&*file).unwrap(), kept);
    }

    #[test]
    fn the_older_form_is_read_too() {
        let old = "due,sent,first,last,n_in,n_out,err\n0.1,0.2,0.3,1.3,2361,183,\n";
        let read = read_records(old.as_bytes()).unwrap();
        let told = (read[0].tokens_in, read[0].asked_out, read[0].sent, read[0].error);
        assert_eq!(told, (Some(2361), 183, Seconds(0.2), None));
    }

    #[test]
    fn errors_name_the_column_and_the_line() {
        let said = |file: &str| read_records(file.as_bytes()).unwrap_err().to_string();
        assert_eq!(said("due,sent,first,last,tokens_in,error\n"), "the column `tokens_out` is missing");
        let header = "due,sent,first,last,tokens_in,tokens_out,error\n";
        assert_eq!(said(&format!("{header}0,0,1,2,5,5,\n0,x,1,2,5,5,\n")), "line 3: `sent` cannot be `x`");
        assert_eq!(said(&format!("{header},0,1,2,5,5,\n")), "line 2: `due` cannot be ``");
        assert_eq!(said(&format!("{header}0,0,NaN,2,5,5,\n")), "line 2: `first` cannot be `NaN`");
        assert_eq!(said(&format!("{header}0,0,1,2,999999999,5,\n")), "line 2: `tokens_in` cannot be `999999999`");
        assert_eq!(said(&format!("{header}0,0,1,2,5,5,odd\n")), "line 2: `error` cannot be `odd`");
    }

    #[test]
    fn fuzz_records() {
        let whole = include_str!("../../../tests/data/h200-8b-turns/conv_kv6000_r12_d40_s1.csv");
        let lines: Vec<&str> = whole.lines().collect();
        let valid = lines[1..].chunks(5).map(|some| format!("{}\n{}\n", lines[0], some.join("\n")));
        autotune_fuzz::fuzz(6, valid, |input, _| {
            if let Ok(records) = read_records(input) {
                write_records(&records, std::io::sink()).unwrap();
            }
        });
    }
}
