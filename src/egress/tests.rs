//! The client against a local listener: what is refused before it is dialled, and what is counted.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use url::Url;

use crate::egress::Egress;
use crate::egress::error::EgressError;
use crate::egress::rules::Rules;

const SECOND: Duration = Duration::from_secs(1);

fn egress(allow: &[&str]) -> Egress {
    let rules = Rules { allow: allow.iter().map(|a| a.parse().unwrap()).collect() };
    Egress::new(rules, SECOND, &[]).unwrap()
}

/// Answers every connection with `answer` once a request's head is in, then closes if `close`.
async fn answering(answer: &'static str, close: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = [0; 4096];
                let mut read = 0;
                while !head[..read].ends_with(b"\r\n\r\n") {
                    read += stream.read(&mut head[read..]).await.unwrap();
                }
                stream.write_all(answer.as_bytes()).await.unwrap();
                if !close {
                    std::future::pending::<()>().await;
                }
            });
        }
    });
    address
}

async fn fetch(egress: &Egress, url: &str) -> Result<bytes::Bytes, EgressError> {
    egress.fetch(&Url::parse(url).unwrap(), 16, SECOND).await
}

#[tokio::test]
async fn loopback_is_refused_in_every_notation_and_nothing_connects() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let egress = egress(&["192.168.0.0/16"]);
    for host in
        ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f.0.0.1", "[::ffff:127.0.0.1]", "0.0.0.0"]
    {
        let request = http::Request::get(format!("http://{host}:{port}/")).body(Default::default()).unwrap();
        let error = egress.send(request).await.unwrap_err();
        assert!(matches!(error, EgressError::Refused { .. }), "{host}: {error:?}");
        assert!(!error.was_sent());
    }
    let accepted = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
    assert!(accepted.is_err(), "a refused address was dialled");
}

#[tokio::test]
async fn an_allowed_address_or_host_is_dialled() {
    let address = answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", false).await;
    assert_eq!(fetch(&egress(&["127.0.0.0/8"]), &format!("http://{address}/")).await.unwrap(), "{}");
    let named = format!("http://localhost:{}/", address.port());
    assert_eq!(fetch(&egress(&["localhost"]), &named).await.unwrap(), "{}");
    assert!(fetch(&egress(&["localhost"]), &format!("http://{address}/")).await.is_err());
}

#[tokio::test]
async fn documents_are_counted_timed_and_never_redirected() {
    type Fits = fn(&EgressError) -> bool;
    let cases: [(&str, bool, Fits); 6] = [
        ("HTTP/1.1 302 Found\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n", false, |e| {
            matches!(e, EgressError::Status(302))
        }),
        ("HTTP/1.1 200 OK\r\ncontent-length: 17\r\n\r\n", false, |e| matches!(e, EgressError::TooLarge(16))),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n11\r\n12345678901234567\r\n", false, |e| {
            matches!(e, EgressError::TooLarge(16))
        }),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{", false, |e| matches!(e, EgressError::TooSlow(_))),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{", true, |e| matches!(e, EgressError::Exchange(_))),
        ("", true, |e| matches!(e, EgressError::Exchange(_))),
    ];
    for (answer, close, fits) in cases {
        let address = answering(answer, close).await;
        let error = fetch(&egress(&["127.0.0.1"]), &format!("http://{address}/")).await.unwrap_err();
        assert!(fits(&error) && error.was_sent(), "{answer:?}: {error:?}");
    }
}

#[tokio::test]
async fn what_cannot_have_been_sent_says_so() {
    let egress = egress(&["127.0.0.1"]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = listener.local_addr().unwrap();
    let closed = {
        let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
        gone.local_addr().unwrap()
    };
    let clear = answering("HTTP/1.1 400 Bad Request\r\n\r\n", true).await;
    for url in [
        format!("http://{closed}/"),
        format!("https://{clear}/"),
        format!("http://user:word@{silent}/"),
        "http://no-such-host.invalid/".to_owned(),
    ] {
        let error = fetch(&egress, &url).await.unwrap_err();
        assert!(!error.was_sent(), "{url}: {error:?}");
    }
    let request = http::Request::get(format!("https://{silent}/")).body(Default::default()).unwrap();
    let error = egress.send(request).await.unwrap_err();
    assert!(matches!(error, EgressError::ConnectTime { .. }), "{error:?}");
}

#[test]
fn a_broken_bundle_is_an_error_and_an_empty_one_is_not() {
    let made = |pem: &str| Egress::new(Rules::default(), SECOND, &[pem.as_bytes().to_vec()]);
    assert!(made("").is_ok());
    assert!(made("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").is_err());
}
