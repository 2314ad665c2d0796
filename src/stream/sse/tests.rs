//! Events written, and streams read in every way of cutting them.

use bytes::Bytes;
use proptest::prelude::*;

use crate::protocol::json::Json;
use crate::protocol::json::compose::Object;
use crate::stream::sse::Decoder;
use crate::stream::sse::KEEP_ALIVE;
use crate::stream::sse::TooLong;
use crate::stream::sse::event;

fn read(chunks: &[&[u8]], limit: usize) -> (Vec<String>, Result<(), TooLong>) {
    let (mut decoder, mut out) = (Decoder::new(limit), Vec::new());
    let result = chunks.iter().try_for_each(|chunk| decoder.push(chunk, &mut out));
    (out.iter().map(|data| String::from_utf8_lossy(data).into_owned()).collect(), result)
}

#[test]
fn an_event_is_its_name_and_one_line_of_data() {
    for (text, line) in [
        ("{\"a\":1}", "{\"a\":1}"),
        ("{\n  \"a\":\r\n\t[1,\r2]\n}", "{   \"a\":  \t[1, 2] }"),
        (r#"{"id":"a\n\ndata: {}"}"#, r#"{"id":"a\n\ndata: {}"}"#),
    ] {
        let json = Json::parse(Bytes::copy_from_slice(text.as_bytes()), 64).unwrap();
        assert_eq!(event(&json), format!("event: message\ndata: {line}\n\n"));
    }
}

#[test]
fn a_stream_is_read_however_it_is_cut() {
    for (stream, expected) in [
        ("data: a\n\n", &["a"][..]),
        ("data:a\r\rdata:  b\r\n\r\n", &["a", " b"]),
        ("data: a\r\ndata: b\rdata: c\n\r\n", &["a\nb\nc"]),
        ("\u{feff}data: a\n\n", &["a"]),
        ("\u{feff}\u{feff}data: a\n\n", &[]),
        ("data: a\ndata\ndata:b\n\n", &["a\n\nb"]),
        (": comment\n\n:\n\ndata: a\n:data: b\n\n", &["a"]),
        ("event: endpoint\nid: 7\nretry: 1\nother: x\ndata: a\n\n", &["a"]),
        ("id: 7\n\nevent: message\n\ndata:\n\ndata\n\n", &[]),
        ("data: a\n\ndata: unfinished\n", &["a"]),
        ("data: a\n\ndata: unfinished", &["a"]),
        ("Data: a\n data: b\ndatax: c\n\n", &[]),
        ("data: x:y\n\n\n\n", &["x:y"]),
        ("", &[]),
    ] {
        let bytes = stream.as_bytes();
        for size in 1..=bytes.len().max(1) {
            let chunks: Vec<_> = bytes.chunks(size).collect();
            let (found, result) = read(&chunks, 1024);
            assert_eq!(
                (&found[..], result),
                (&expected.iter().map(|data| (*data).to_owned()).collect::<Vec<_>>()[..], Ok(())),
                "{stream:?} by {size}"
            );
        }
    }
}

#[test]
fn what_is_too_long_ends_the_reading() {
    let too_long = Err(TooLong { limit: 8 });
    assert_eq!(read(&[b"data: 12345678\n\n"], 8), (vec!["12345678".to_owned()], Ok(())));
    for stream in [
        &b"data: 123456789\n\n"[..],
        b"data: 1234\ndata: 5678\n\n",
        b"data:\ndata:\ndata:\ndata:\ndata:\ndata:\ndata:\ndata:\ndata:\ndata:\ndata:\n",
        b": a comment without an end, which goes on",
        b"event: a name that is far too long\n",
    ] {
        for size in [1, 3, stream.len()] {
            let chunks: Vec<_> = stream.chunks(size).collect();
            assert_eq!(read(&chunks, 8).1, too_long, "{:?} by {size}", String::from_utf8_lossy(stream));
        }
    }
    // What was complete before is not lost.
    assert_eq!(read(&[b"data: a\n\ndata: 123456789\n\n"], 8), (vec!["a".to_owned()], too_long));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read(texts in prop::collection::vec(any::<String>(), 0..6), size in 1_usize..40) {
        let messages: Vec<Json> = texts.iter().map(|text| Object::new().put_str(text, text).finish()).collect();
        let mut stream = Vec::new();
        for message in &messages {
            stream.extend_from_slice(KEEP_ALIVE);
            stream.extend_from_slice(&event(message));
        }
        let (mut decoder, mut out) = (Decoder::new(4096), Vec::new());
        for chunk in stream.chunks(size) {
            decoder.push(chunk, &mut out).unwrap();
        }
        let sent: Vec<_> = messages.iter().map(|message| message.bytes().clone()).collect();
        prop_assert_eq!(out, sent);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(chunks in prop::collection::vec("[data: \n\r\u{feff}x]{0,12}", 0..6)) {
        let (mut decoder, mut out) = (Decoder::new(16), Vec::new());
        let _ = chunks.iter().try_for_each(|chunk| decoder.push(chunk.as_bytes(), &mut out));
        prop_assert!(out.iter().all(|data| !data.is_empty() && data.len() <= 16));
    }
}
