//! Writes the request file of a probe and returns its digest; reads it again and verifies that.

use std::io::{self, ErrorKind, Write};
use std::path::Path;

use crate::digest::sha256;
use crate::private::{create_file, create_folder};
use autotune_load::{RequestRecord, read_records, write_records};

/// Writes requests to a new file, whose folder is made where it is missing. Returns their digest.
pub fn keep_requests(path: &Path, records: &[RequestRecord]) -> io::Result<String> {
    path.parent().map_or(Ok(()), create_folder)?;
    let mut text = Vec::new();
    write_records(records, &mut text)?;
    let mut file = create_file(path)?;
    file.write_all(&text)?;
    // The record that names it is synced: the file must not be what a power cut takes.
    file.sync_data()?;
    Ok(sha256(&text))
}

/// The requests in the file that a record names. The digest is that of the record; journals of earlier versions have none.
///
/// # Errors
/// The fault of the file, as the end of a sentence that begins with its path.
pub fn requests_of(path: &Path, digest: Option<&str>) -> Result<Vec<RequestRecord>, String> {
    let bytes = std::fs::read(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => "is missing, and the journal names it".to_owned(),
        _ => format!("cannot be read: {error}"),
    })?;
    verify_digest(&bytes, digest)?;
    read_records(&*bytes).map_err(|error| format!("is damaged: {error}"))
}

/// Verifies a file by its digest, where there is one.
pub fn verify_digest(bytes: &[u8], digest: Option<&str>) -> Result<(), String> {
    match digest {
        Some(digest) if digest != sha256(bytes) => {
            Err("is damaged: its SHA-256 is not the one in the journal".to_owned())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_bit_that_flipped_is_seen_and_a_missing_file_is_called_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t001-p01.csv");
        assert!(requests_of(&path, None).unwrap_err().contains("missing"));
        let text = b"due,sent,first,last,tokens_in,tokens_out,error\n0.1,0.2,0.3,1.3,2361,183,\n";
        std::fs::write(&path, text).unwrap();
        let digest = sha256(text);
        let read = requests_of(&path, Some(&digest)).unwrap();
        assert_eq!(read, requests_of(&path, None).unwrap(), "a journal of an earlier version has no digest");
        for bit in 0..text.len() * 8 {
            let mut flipped = text.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, &flipped).unwrap();
            assert!(requests_of(&path, Some(&digest)).unwrap_err().contains("damaged"), "bit {bit}");
        }
    }
}
