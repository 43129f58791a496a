//! The words of the file by which a running engine takes other limits; what each means stands in `engine/dialects/vllm/live_scheduler.py`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Words of the file, eight bytes each.
pub const WORDS: u64 = 512;
/// The first word of the engine's answer.
pub const ANSWER: u64 = 16;

pub struct LiveWords(pub File);

impl LiveWords {
    pub fn write(&self, word: u64, value: i64) -> io::Result<()> {
        self.0.write_all_at(&value.to_ne_bytes(), 8 * word)
    }

    pub fn read(&self, word: u64) -> io::Result<i64> {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, 8 * word)?;
        Ok(i64::from_ne_bytes(bytes))
    }
}
