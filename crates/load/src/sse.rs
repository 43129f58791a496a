//! Parses server-sent events from a byte stream that may be split anywhere.

/// The longest event: whole answers of a server that does not stream are far shorter.
pub const LONGEST_EVENT: usize = 4 << 20;

/// Cuts a stream of bytes into the payloads of its `data:` events.
#[derive(Default)]
pub struct Framer {
    /// The beginning of a line whose end has not come yet.
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    after_return: bool,
    overflowed: bool,
}

impl Framer {
    /// Takes bytes as they came and hands over every event that they complete.
    ///
    /// Lines end with LF, CR or CRLF. Comments and fields other than `data` are skipped. Several `data` lines of one event are joined by LF (HTML
    /// standard, section 9.2.6). After an event or a line of more than [`LONGEST_EVENT`] bytes, the rest of the stream is ignored.
    pub fn push(&mut self, mut bytes: &[u8], mut event: impl FnMut(&[u8])) {
        while !bytes.is_empty() && !self.overflowed {
            if std::mem::take(&mut self.after_return) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) else {
                self.overflowed = self.line.len() + bytes.len() > LONGEST_EVENT;
                if !self.overflowed {
                    self.line.extend_from_slice(bytes);
                }
                return;
            };
            self.after_return = bytes[end] == b'\r';
            if self.line.is_empty() {
                self.end_line(&bytes[..end], &mut event);
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(&bytes[..end]);
                self.end_line(&line, &mut event);
                // Its allocation is kept for the next line that comes in pieces.
                line.clear();
                self.line = line;
            }
            bytes = &bytes[end + 1..];
        }
    }

    /// Whether an event was too long.
    pub fn overflowed(&self) -> bool {
        self.overflowed
    }

    fn end_line(&mut self, line: &[u8], event: &mut impl FnMut(&[u8])) {
        if line.is_empty() {
            if self.has_data {
                event(&self.data);
            }
            self.data.clear();
            self.has_data = false;
        } else if let Some(value) = line.strip_prefix(b"data:") {
            if self.data.len() + value.len() >= LONGEST_EVENT {
                self.overflowed = true;
                return;
            }
            if self.has_data {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
            self.has_data = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pieces::pieces;

    fn events(chunks: &[&[u8]]) -> Vec<String> {
        let mut framer = Framer::default();
        let mut out = Vec::new();
        for chunk in chunks {
            framer.push(chunk, |e| out.push(String::from_utf8_lossy(e).into_owned()));
        }
        out
    }

    const STREAM: &[u8] = b": ping\n\ndata: {\"a\":1}\n\nevent: x\r\ndata:two\r\ndata: lines\r\n\r\ndata: [DONE]\n\n";

    #[test]
    fn comments_fields_and_line_ends_are_understood() {
        assert_eq!(events(&[STREAM]), ["{\"a\":1}", "two\nlines", "[DONE]"]);
    }

    #[test]
    fn a_split_at_every_byte_changes_nothing() {
        let bytes: Vec<&[u8]> = STREAM.chunks(1).collect();
        assert_eq!(events(&bytes), events(&[STREAM]));
        for at in 0..STREAM.len() {
            assert_eq!(events(&[&STREAM[..at], &STREAM[at..]]), events(&[STREAM]), "split at {at}");
        }
    }

    #[test]
    fn a_line_or_an_event_without_an_end_is_given_up() {
        for piece in [&[b'x'; 1 << 16][..], &b"data: one more line\n".repeat(1 << 12)] {
            let (mut framer, mut events) = (Framer::default(), 0);
            for _ in 0..(2 * LONGEST_EVENT / piece.len()) {
                framer.push(piece, |_| events += 1);
            }
            assert!(framer.overflowed() && framer.line.capacity() + framer.data.capacity() <= 2 * LONGEST_EVENT);
            framer.push(b"\n\ndata: late\n\n", |_| events += 1);
            assert_eq!(events, 0, "what follows is not understood");
        }
    }

    #[test]
    fn an_unfinished_event_is_not_an_event() {
        assert!(events(&[b"data: half"]).is_empty());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_in_arbitrary_pieces_never_panic_and_never_depend_on_the_split(
            bytes in proptest::collection::vec(prop_oneof![any::<u8>(), Just(b'\r'), Just(b'\n')], 0..300), sizes in proptest::collection::vec(1usize..40, 1..300)
        ) {
            prop_assert_eq!(events(&pieces(&bytes, &sizes)), events(&[&bytes]));
        }

        #[test]
        fn nothing_that_was_sent_is_lost(payloads in proptest::collection::vec("[^\r\n]{1,40}", 0..10), size in 1usize..20, end in prop_oneof![Just("\n"), Just("\r\n"), Just("\r")]) {
            let stream: String = payloads.iter().map(|p| format!("data: {p}{end}{end}")).collect();
            let pieces: Vec<&[u8]> = stream.as_bytes().chunks(size).collect();
            prop_assert_eq!(events(&pieces), payloads);
        }
    }
}
