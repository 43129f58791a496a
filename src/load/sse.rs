//! Server-sent events out of a byte stream that may be split anywhere.

/// Cuts a stream of bytes into the payloads of its `data:` events.
#[derive(Default)]
pub struct Framer {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    after_return: bool,
}

impl Framer {
    /// Takes bytes as they came and hands over every event that they complete.
    ///
    /// Lines end with LF, CR or CRLF; comments and fields other than `data` are skipped; several `data` lines of one event are
    /// joined by LF, as the HTML standard says (section 9.2.6, interpreting an event stream).
    pub fn push(&mut self, bytes: &[u8], mut event: impl FnMut(&[u8])) {
        for &byte in bytes {
            let line_feed_of_pair = self.after_return && byte == b'\n';
            self.after_return = byte == b'\r';
            match byte {
                _ if line_feed_of_pair => {}
                b'\n' | b'\r' => self.end_line(&mut event),
                _ => self.line.push(byte),
            }
        }
    }

    fn end_line(&mut self, event: &mut impl FnMut(&[u8])) {
        if self.line.is_empty() {
            if self.has_data {
                event(&self.data);
            }
            self.data.clear();
            self.has_data = false;
        } else if let Some(value) = self.line.strip_prefix(b"data:") {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
            self.has_data = true;
        }
        self.line.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
    fn an_unfinished_event_is_not_an_event() {
        assert!(events(&[b"data: half"]).is_empty());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_in_arbitrary_pieces_never_panic_and_never_depend_on_the_split(
            bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0usize..300
        ) {
            let at = at.min(bytes.len());
            prop_assert_eq!(events(&[&bytes[..at], &bytes[at..]]), events(&[&bytes]));
        }
    }
}
