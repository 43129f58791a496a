//! The client's part of HTTP/1.1 (RFC 9112): reads the head and the body of an answer from bytes that may be split anywhere.
//!
//! It is our own code because the load generator must know which bytes came in which read.

/// Bytes of the longest head that is accepted.
const LONGEST_HEAD: usize = 64 << 10;
/// A head up to this length is parsed with every piece, so that other protocols are noticed at once.
const SHORT_HEAD: usize = 1 << 10;
/// Headers of an answer, at most.
const MOST_HEADERS: usize = 128;

/// Bytes that are not HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer is not HTTP/1.1")]
pub(super) struct NotHttp;

/// What an answer's head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) status: u16,
    /// Whether the connection may be used again after the body.
    pub(super) keep_alive: bool,
    framing: Framing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Chunked,
    Length(u64),
    UntilClose,
}

/// Reads an answer piece by piece.
#[derive(Default)]
pub(super) struct Reader {
    /// Bytes of the head, and later of a chunk's size line, whose end has not come yet.
    held: Vec<u8>,
    head: Option<Head>,
    place: Place,
}

/// The part of the answer that the next byte belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Head,
    /// So many bytes of a body with a length.
    Counted(u64),
    /// The line with a chunk's size.
    Size,
    /// So many bytes of a chunk.
    Chunk(u64),
    /// The line end behind a chunk.
    AfterChunk,
    /// Lines behind the last chunk.
    Trailer,
    /// Everything until the connection closes.
    UntilClose,
    /// The whole answer has been read.
    Over,
}

impl Reader {
    /// Takes bytes as they came and hands over what is body. Bytes behind the answer's end are left unread.
    pub(super) fn push(&mut self, mut bytes: &[u8], mut body: impl FnMut(&[u8])) -> Result<(), NotHttp> {
        while !bytes.is_empty() {
            match self.place {
                Place::Head => bytes = self.head(bytes)?,
                Place::Counted(left) => {
                    let (now, rest) = split(bytes, left);
                    body(now);
                    (self.place, bytes) = (counted(left - now.len() as u64), rest);
                }
                Place::Chunk(left) => {
                    let (now, rest) = split(bytes, left);
                    body(now);
                    let left = left - now.len() as u64;
                    (self.place, bytes) = (if left > 0 { Place::Chunk(left) } else { Place::AfterChunk }, rest);
                }
                Place::Size => {
                    bytes = self.line(bytes, |line| {
                        let digits = line.split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
                        match number(digits, 16).ok_or(NotHttp)? {
                            0 => Ok(Place::Trailer),
                            size => Ok(Place::Chunk(size)),
                        }
                    })?;
                }
                Place::AfterChunk => {
                    bytes = self.line(bytes, |line| if line.is_empty() { Ok(Place::Size) } else { Err(NotHttp) })?;
                }
                Place::Trailer => {
                    bytes = self.line(bytes, |line| Ok(if line.is_empty() { Place::Over } else { Place::Trailer }))?;
                }
                Place::UntilClose => {
                    body(bytes);
                    bytes = &[];
                }
                Place::Over => {
                    // Unexpected bytes: the connection is not used again.
                    if let Some(head) = &mut self.head {
                        head.keep_alive = false;
                    }
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The head, once it has come.
    pub(super) fn head_read(&self) -> Option<Head> {
        self.head
    }

    /// Whether the whole answer has come, given that the connection is still open.
    pub(super) fn is_over(&self) -> bool {
        self.place == Place::Over
    }

    fn head<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], NotHttp> {
        let before = self.held.len();
        self.held.extend_from_slice(bytes);
        // A head ends with a line end: without one in the new piece there is nothing to parse.
        if self.held.len() > SHORT_HEAD && memchr::memchr(b'\n', bytes).is_none() {
            return if self.held.len() > LONGEST_HEAD { Err(NotHttp) } else { Ok(&[]) };
        }
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        match response.parse(&self.held).map_err(|_| NotHttp)? {
            httparse::Status::Partial if self.held.len() > LONGEST_HEAD => Err(NotHttp),
            httparse::Status::Partial => Ok(&[]),
            httparse::Status::Complete(length) => {
                let head = head_of(&response)?;
                // The bytes before were no whole head, so the head ends within the new ones.
                let rest = &bytes[length.saturating_sub(before)..];
                self.held.clear();
                // A status of 1xx comes before the final answer.
                if head.status >= 200 {
                    self.head = Some(head);
                    self.place = match head.framing {
                        Framing::Chunked => Place::Size,
                        Framing::Length(length) => counted(length),
                        Framing::UntilClose => Place::UntilClose,
                    };
                }
                Ok(rest)
            }
        }
    }

    /// Completes a line, and goes to the place that `next` returns for it.
    fn line<'a>(
        &mut self,
        bytes: &'a [u8],
        next: impl FnOnce(&[u8]) -> Result<Place, NotHttp>,
    ) -> Result<&'a [u8], NotHttp> {
        let Some(end) = memchr::memchr(b'\n', bytes) else {
            self.held.extend_from_slice(bytes);
            return if self.held.len() > LONGEST_HEAD { Err(NotHttp) } else { Ok(&[]) };
        };
        let without_return = |line: &[u8]| line.strip_suffix(b"\r").map_or(line.len(), <[u8]>::len);
        self.place = if self.held.is_empty() {
            let line = &bytes[..end];
            next(&line[..without_return(line)])?
        } else {
            self.held.extend_from_slice(&bytes[..end]);
            let length = without_return(&self.held);
            let place = next(&self.held[..length])?;
            self.held.clear();
            place
        };
        Ok(&bytes[end + 1..])
    }
}

fn counted(left: u64) -> Place {
    if left > 0 { Place::Counted(left) } else { Place::Over }
}

fn split(bytes: &[u8], at: u64) -> (&[u8], &[u8]) {
    bytes.split_at(usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len()))
}

/// A number of digits alone: a sign would be parsed too.
fn number(digits: &[u8], radix: u32) -> Option<u64> {
    let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
    u64::from_str_radix(digits, radix).ok()
}

fn head_of(response: &httparse::Response<'_, '_>) -> Result<Head, NotHttp> {
    let values = |name: &str| {
        let name = name.to_owned();
        response.headers.iter().filter(move |h| h.name.eq_ignore_ascii_case(&name)).map(|h| h.value.trim_ascii())
    };
    let has = |name: &str, word: &[u8]| {
        values(name).any(|v| v.split(|b| *b == b',').any(|w| w.trim_ascii().eq_ignore_ascii_case(word)))
    };
    let status = response.code.ok_or(NotHttp)?;
    let mut lengths = values("content-length").map(|digits| number(digits, 10).ok_or(NotHttp));
    let length = lengths.next().transpose()?;
    // Different lengths make an answer invalid (RFC 9112, section 6.3).
    if lengths.any(|other| other.ok() != length) {
        return Err(NotHttp);
    }
    let framing = match length {
        _ if matches!(status, 204 | 304) => Framing::Length(0),
        _ if has("transfer-encoding", b"chunked") => Framing::Chunked,
        Some(length) => Framing::Length(length),
        None => Framing::UntilClose,
    };
    let persistent = response.version == Some(1) || has("connection", b"keep-alive");
    let keep_alive = persistent && !has("connection", b"close") && framing != Framing::UntilClose;
    Ok(Head { status, keep_alive, framing })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pieces::pieces;

    fn read(pieces: &[&[u8]]) -> (Result<(), NotHttp>, Option<Head>, String, bool) {
        let (mut reader, mut text) = (Reader::default(), Vec::new());
        let done = pieces.iter().try_for_each(|piece| reader.push(piece, |b| text.extend_from_slice(b)));
        (done, reader.head_read(), String::from_utf8_lossy(&text).into_owned(), reader.is_over())
    }

    const CHUNKED: &[u8] =
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX: y\r\n\r\n\
        5\r\nhello\r\nB;ext=1\r\n wide world\r\n0\r\nTrailer: t\r\n\r\n";

    #[test]
    fn a_head_that_comes_byte_by_byte_is_not_read_anew_each_time() {
        let long = [b"HTTP/1.1 200 OK\r\nX: ".as_slice(), &vec![b'x'; LONGEST_HEAD], b"\r\n\r\n"].concat();
        let begun = autotune_clock::now();
        let (done, head, _, _) = read(&pieces(&long, &vec![1; long.len()]));
        assert_eq!((done, head.is_none()), (Err(NotHttp), true));
        // All 64 KiB read 64 Ki times would be minutes.
        assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{:?}", begun.elapsed());
        let whole = [b"HTTP/1.1 200 OK\r\nX: ".as_slice(), &[b'x'; 5000], b"\r\ncontent-length: 2\r\n\r\nok"].concat();
        assert_eq!(read(&pieces(&whole, &vec![1; whole.len()])).2, "ok");
    }

    #[test]
    fn chunks_lengths_and_closings_frame_a_body() {
        let (done, head, text, over) = read(&[CHUNKED]);
        assert_eq!((done, text.as_str(), over), (Ok(()), "hello wide world", true));
        assert_eq!(head.map(|h| (h.status, h.keep_alive)), Some((200, true)));
        let (_, head, text, over) =
            read(&[b"HTTP/1.1 429 Too Many\r\ncontent-length: 3\r\nConnection: close\r\n\r\nno!"]);
        assert_eq!((head.map(|h| (h.status, h.keep_alive)), text.as_str(), over), (Some((429, false)), "no!", true));
        let (_, head, text, over) = read(&[b"HTTP/1.0 200 OK\r\n\r\nall of it"]);
        assert_eq!((head.map(|h| h.keep_alive), text.as_str(), over), (Some(false), "all of it", false));
        let (_, _, _, over) = read(&[b"HTTP/1.1 204 No Content\r\n\r\n"]);
        assert!(over);
        assert_eq!(read(&[b"SSH-2.0-OpenSSH\r\n"]).0, Err(NotHttp));
        assert_eq!(read(&[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"]).0, Err(NotHttp));
    }

    #[test]
    fn a_length_is_one_number_without_a_sign() {
        for wrong in ["+5", "-5", "", "5 5", "5, 5", "99999999999999999999", "5\r\nContent-Length: 6"] {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {wrong}\r\n\r\nhello");
            assert_eq!(read(&[head.as_bytes()]).0, Err(NotHttp), "{wrong}");
        }
        let twice = read(&[b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello"]);
        assert_eq!((twice.0, twice.2.as_str(), twice.3), (Ok(()), "hello", true));
        assert_eq!(read(&[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n"]).0, Err(NotHttp));
    }

    #[test]
    fn bytes_behind_the_end_spoil_the_connection_and_not_the_answer() {
        let (done, head, text, over) = read(&[CHUNKED, b"HTTP/1.1 200"]);
        assert_eq!((done, text.as_str(), over), (Ok(()), "hello wide world", true));
        assert_eq!(head.map(|h| h.keep_alive), Some(false));
    }

    proptest! {
        #[test]
        fn a_split_anywhere_changes_nothing(sizes in proptest::collection::vec(1usize..9, 1..60)) {
            prop_assert_eq!(read(&pieces(CHUNKED, &sizes)), read(&[CHUNKED]));
        }

        #[test]
        fn arbitrary_bytes_never_panic(head in any::<bool>(), bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0usize..200) {
            let start: &[u8] = if head { b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" } else { b"" };
            let all = [start, &bytes].concat();
            let at = at.min(all.len());
            let _ = read(&[&all[..at], &all[at..]]);
        }
    }
}
