//! Server-sent events: what is written to clients, and what is read from backends.
//!
//! spec: WHATWG HTML, 9.2 Server-sent events

use bytes::BufMut;
use bytes::Bytes;
use bytes::BytesMut;

use crate::protocol::json::Json;

#[cfg(test)]
mod tests;

/// What is written to a stream after a while of silence.
pub const KEEP_ALIVE: &[u8] = b":\n\n";

const EVENT: &[u8] = b"event: message\ndata: ";
const DATA: &[u8] = b"data: ";
const MARK: &[u8] = b"\xef\xbb\xbf";

/// The event that carries `message`: a constant name and one line of data. No text of anybody's gets
/// anywhere else.
pub fn event(message: &Json) -> Bytes {
    let text = message.bytes();
    let mut out = BytesMut::with_capacity(EVENT.len() + text.len() + 2);
    out.put_slice(EVENT);
    // In a proven text a raw line end can only stand between tokens, where a blank means the same.
    let mut from = 0;
    for at in memchr::memchr2_iter(b'\n', b'\r', text) {
        out.put_slice(&text[from..at]);
        out.put_u8(b' ');
        from = at + 1;
    }
    out.put_slice(&text[from..]);
    out.put_slice(b"\n\n");
    out.freeze()
}

/// A line, or the data of an event, over the limit. Nothing after it can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event is longer than {limit} bytes")]
pub struct TooLong {
    /// The limit.
    pub limit: usize,
}

/// Reads events out of the chunks of a stream, and keeps no more of it than one line and one event's data.
/// What is unfinished when the stream ends is no event, so there is nothing to call at its end.
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    /// The beginning of a line whose end has not arrived.
    line: Vec<u8>,
    /// The data of the event so far, a line end after each of its lines.
    data: Vec<u8>,
    /// Whether a line feed would be the second half of a line end that was taken.
    after_return: bool,
    /// Whether no line was read yet: a byte order mark may stand here.
    first: bool,
}

impl Decoder {
    /// A decoder for events of at most `max_event_bytes` of data.
    pub fn new(max_event_bytes: usize) -> Self {
        Self { limit: max_event_bytes, line: Vec::new(), data: Vec::new(), after_return: false, first: true }
    }

    /// Reads `chunk` and appends the data of the events that it completes to `out`, also where it then
    /// fails. Names, ids and retry times are dropped, as are comments and events without data.
    pub fn push(&mut self, chunk: &[u8], out: &mut Vec<Bytes>) -> Result<(), TooLong> {
        let mut rest = chunk;
        while !rest.is_empty() {
            if std::mem::take(&mut self.after_return) && rest[0] == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', rest) else {
                self.fits(self.line.len() + rest.len(), DATA.len() + MARK.len())?;
                self.line.extend_from_slice(rest);
                break;
            };
            self.fits(self.line.len() + end, DATA.len() + MARK.len())?;
            self.after_return = rest[end] == b'\r';
            if self.line.is_empty() {
                self.take_line(&rest[..end], out)?;
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(&rest[..end]);
                self.take_line(&line, out)?;
                line.clear();
                self.line = line;
            }
            rest = &rest[end + 1..];
        }
        Ok(())
    }

    fn take_line(&mut self, line: &[u8], out: &mut Vec<Bytes>) -> Result<(), TooLong> {
        let line = match std::mem::take(&mut self.first) {
            true => line.strip_prefix(MARK).unwrap_or(line),
            false => line,
        };
        if line.is_empty() {
            self.dispatch(out);
            return Ok(());
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &[][..]),
        };
        if field == b"data" {
            let value = value.strip_prefix(b" ").unwrap_or(value);
            self.fits(self.data.len() + value.len(), 0)?;
            self.data.extend_from_slice(value);
            self.data.push(b'\n');
        }
        Ok(())
    }

    fn dispatch(&mut self, out: &mut Vec<Bytes>) {
        self.data.pop();
        if !self.data.is_empty() {
            out.push(std::mem::take(&mut self.data).into());
        }
    }

    fn fits(&self, bytes: usize, besides: usize) -> Result<(), TooLong> {
        match bytes <= self.limit.saturating_add(besides) {
            true => Ok(()),
            false => Err(TooLong { limit: self.limit }),
        }
    }
}
