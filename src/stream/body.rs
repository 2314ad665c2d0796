//! Step 7: a request's body, whole, within size, time and a least rate.

use std::pin::pin;
use std::time::Duration;

use bytes::Buf;
use bytes::BufMut;
use bytes::Bytes;
use bytes::BytesMut;
use http_body::Body;
use http_body_util::BodyExt;
use tokio::time::Instant;
use tokio::time::timeout_at;

use crate::model::limits::Limits;
use crate::stream::budget::Held;

/// How long a body may be slower than the least rate before that counts.
const GRACE: Duration = Duration::from_secs(5);

/// What a declared length may reserve before its bytes are there.
const FIRST_RESERVE: u64 = 64 << 10;

/// Why there is no body. `Display` is what the caller reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// Over the limit, declared or sent.
    #[error("the request body is too large")]
    TooLarge,
    /// Not there in time, or too slowly.
    #[error("the request body did not arrive in time")]
    Timeout,
    /// The bodies of all requests, or of this tenant's, hold as much as they may.
    #[error("too much is being sent at once: try again")]
    Overloaded,
    /// It ended early or was badly chunked.
    #[error("the request body is broken")]
    Broken,
}

/// Reads `body` to its end; trailers are ignored.
///
/// A declared length over the limit is refused before the body is polled, so that no
/// `100 Continue` is sent for it.
///
/// # Cancel safety
/// Dropping the future drops the body; what was read is lost.
pub async fn read<B: Body>(body: B, limits: &Limits, held: &mut Held) -> Result<Bytes, BodyError> {
    gather(body, limits, held, GRACE).await
}

async fn gather<B: Body>(
    body: B,
    limits: &Limits,
    held: &mut Held,
    grace: Duration,
) -> Result<Bytes, BodyError> {
    let declared = body.size_hint().lower();
    if declared > limits.body_bytes as u64 {
        return Err(BodyError::TooLarge);
    }
    let started = Instant::now();
    let mut body = pin!(body);
    let mut whole = BytesMut::new();
    loop {
        let earned = Duration::from_secs_f64(whole.len() as f64 / limits.body_rate.max(1) as f64);
        let deadline = started + grace.saturating_add(earned).min(limits.body_time);
        let frame = timeout_at(deadline, body.frame()).await.map_err(|_| BodyError::Timeout)?;
        let Some(frame) = frame else { return Ok(whole.freeze()) };
        let Ok(mut data) = frame.map_err(|_| BodyError::Broken)?.into_data() else { continue };
        if whole.len() + data.remaining() > limits.body_bytes {
            return Err(BodyError::TooLarge);
        }
        if !held.grow(whole.len() + data.remaining()) {
            return Err(BodyError::Overloaded);
        }
        if whole.is_empty() {
            // The usual small body is one frame, which is handed on without a copy.
            if body.is_end_stream() {
                return Ok(data.copy_to_bytes(data.remaining()));
            }
            whole.reserve(usize::try_from(declared.min(FIRST_RESERVE)).unwrap_or_default());
        }
        whole.put(data);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::io;
    use std::time::Duration;

    use axum::body::Body;
    use bytes::Bytes;
    use futures_util::StreamExt;
    use futures_util::stream;
    use http_body_util::Full;
    use tokio::time::sleep;

    use super::BodyError;
    use super::gather;
    use super::read;
    use crate::model::limits::Limits;
    use crate::model::name::TenantName;
    use crate::stream::budget::Budget;
    use crate::stream::budget::Held;

    fn held() -> Held {
        Budget::new(1 << 20).open(&TenantName::new("acme").unwrap())
    }

    fn limits() -> Limits {
        Limits { body_bytes: 10, body_rate: 100, body_time: Duration::from_millis(400), ..Limits::default() }
    }

    fn chunks(parts: &[&'static str], pause: Duration) -> Body {
        let parts = stream::iter(parts.to_vec()).then(move |part| async move {
            sleep(pause).await;
            Ok::<_, Infallible>(Bytes::from(part))
        });
        Body::from_stream(parts)
    }

    #[tokio::test]
    async fn the_size_is_a_limit_declared_or_sent() {
        let limits = limits();
        let now = Duration::ZERO;
        assert_eq!(read(Body::from("0123456789"), &limits, &mut held()).await.unwrap(), "0123456789");
        assert_eq!(read(Body::empty(), &limits, &mut held()).await.unwrap(), "");
        assert_eq!(
            read(chunks(&["01234", "", "56789"], now), &limits, &mut held()).await.unwrap(),
            "0123456789"
        );
        let declared = Full::new(Bytes::from("0123456789a"));
        assert_eq!(read(declared, &limits, &mut held()).await, Err(BodyError::TooLarge));
        assert_eq!(read(Body::from("0123456789a"), &limits, &mut held()).await, Err(BodyError::TooLarge));
        assert_eq!(
            read(chunks(&["01234", "56789a"], now), &limits, &mut held()).await,
            Err(BodyError::TooLarge)
        );
    }

    #[tokio::test]
    async fn time_and_rate_are_limits() {
        let never = || Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        assert_eq!(read(never(), &limits(), &mut held()).await, Err(BodyError::Timeout));
        // 1 byte in 60 ms is less than 100 a second, and the grace is over before the third.
        let slow = chunks(&["0", "1", "2", "3", "4"], Duration::from_millis(60));
        let grace = Duration::from_millis(100);
        assert_eq!(gather(slow, &limits(), &mut held(), grace).await, Err(BodyError::Timeout));
        let patient = Limits { body_rate: 10, body_time: Duration::from_secs(30), ..limits() };
        let grace = Duration::from_millis(200);
        let slow = chunks(&["0", "1", "2", "3", "4"], Duration::from_millis(60));
        assert_eq!(gather(slow, &patient, &mut held(), grace).await.unwrap(), "01234");
    }

    #[tokio::test]
    async fn a_body_that_fails_is_broken() {
        let parts = [Ok(Bytes::from("0")), Err(io::Error::other("reset"))];
        let broken = Body::from_stream(stream::iter(parts));
        assert_eq!(read(broken, &limits(), &mut held()).await, Err(BodyError::Broken));
    }
}
