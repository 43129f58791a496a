//! The output of an engine: read to its end and kept, within bounds and without secrets.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::private::create_file;
use autotune_plan::settings::Secrets;

/// Bytes of the beginning that the file keeps; of the rest it keeps the end.
const FILE_HEAD: usize = 8 << 20;
/// Bytes of the beginning that memory keeps: engines print their configuration there.
const HEAD: usize = 128 << 10;
/// Bytes of the end that memory keeps: engines print there why they died.
const TAIL: usize = 256 << 10;
/// A line without an end, such as a progress bar's, is cut at this length.
const LINE: usize = 16 << 10;

/// Output up to this many bytes is in memory as a whole.
pub(super) const WHOLE: usize = HEAD + TAIL;

/// The output of one process. Cloning shares it.
#[derive(Clone)]
pub struct Output(Arc<Mutex<Kept>>);

struct Kept {
    file: Option<File>,
    written: usize,
    ended: bool,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    secrets: Secrets,
}

impl Output {
    /// Keeps the ends of the output in memory, and more of it in a new file, if one is named.
    pub fn kept(log: Option<&Path>, secrets: Secrets) -> std::io::Result<Self> {
        let file = log.map(create_file).transpose()?;
        let (head, tail) = (Vec::new(), VecDeque::new());
        Ok(Self(Arc::new(Mutex::new(Kept { file, written: 0, ended: false, head, tail, secrets }))))
    }

    /// Reads to the end of the stream, whatever happens to the file.
    pub(super) async fn drain(self, mut stream: impl AsyncRead + Unpin) {
        let mut pending = Vec::new();
        let mut buffer = vec![0; 8 << 10];
        while let Ok(read @ 1..) = stream.read(&mut buffer).await {
            pending.extend_from_slice(&buffer[..read]);
            while let Some(end) =
                pending.iter().position(|b| *b == b'\n').or((pending.len() >= LINE).then_some(LINE - 1))
            {
                let line: Vec<u8> = pending.drain(..=end).collect();
                self.lock().keep(&line);
            }
        }
        let mut kept = self.lock();
        kept.keep(&pending);
        kept.close();
    }

    /// How many bytes there were, and whether there will be no more.
    pub(super) fn progress(&self) -> (usize, bool) {
        let kept = self.lock();
        (kept.written, kept.ended)
    }

    /// The beginning and the end, as far as memory keeps them.
    pub fn text(&self) -> String {
        let kept = self.lock();
        let tail: Vec<u8> = kept.tail.iter().copied().collect();
        let gap = if kept.written > HEAD + kept.tail.len() { "\n[...]\n" } else { "" };
        format!("{}{gap}{}", String::from_utf8_lossy(&kept.head), String::from_utf8_lossy(&tail))
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn keep(&mut self, line: &[u8]) {
        let text = self.secrets.redact(&String::from_utf8_lossy(line)).into_bytes();
        if self.written < FILE_HEAD {
            // If the disk is full, the log ends and the engine goes on.
            self.file.as_mut().map(|f| f.write_all(&text));
        }
        self.written += text.len();
        let room = HEAD.saturating_sub(self.head.len()).min(text.len());
        self.head.extend_from_slice(&text[..room]);
        self.tail.extend(&text[room..]);
        let excess = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..excess);
    }

    fn close(&mut self) {
        self.ended = true;
        if let Some(mut file) = self.file.take().filter(|_| self.written > FILE_HEAD) {
            let tail: Vec<u8> = self.tail.iter().copied().collect();
            let left_out = self.written.saturating_sub(FILE_HEAD + tail.len());
            drop(writeln!(file, "\n[{left_out} bytes left out]"));
            drop(file.write_all(&tail));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn long_output_is_bounded_and_both_ends_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("engine.log");
        let output = Output::kept(Some(&path), Secrets::default()).unwrap();
        let mut text = String::from("first line\n");
        while text.len() < FILE_HEAD + 3 * TAIL {
            text.push_str("another line of the middle, of which nobody will ever ask for anything\n");
        }
        text.push_str("last words");
        output.clone().drain(text.as_bytes()).await;
        assert!(output.text().starts_with("first line") && output.text().ends_with("last words"));
        assert!(output.text().len() < HEAD + TAIL + 100);
        let file = std::fs::read_to_string(&path).unwrap();
        assert!(file.len() < FILE_HEAD + TAIL + LINE + 100 && file.ends_with("last words"));
    }

    #[tokio::test]
    async fn secrets_never_reach_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("engine.log");
        let output = Output::kept(Some(&path), Secrets::new(["sk-very-secret".to_owned()])).unwrap();
        output.clone().drain(&b"non-default args: {'api_key': ['sk-very-secret']}\n"[..]).await;
        assert!(!output.text().contains("very") && output.text().contains("redacted"));
        assert!(!std::fs::read_to_string(&path).unwrap().contains("very"));
    }
}
