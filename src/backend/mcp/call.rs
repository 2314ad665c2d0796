//! A call in flight: one request, the frames of its answer, two clocks.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http::Request;
use http_body_util::Full;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::backend::BackendCall;
use crate::backend::BackendError;
use crate::backend::clock::Clock;
use crate::backend::clock::Clocks;
use crate::backend::mcp::answer::Heard;
use crate::backend::mcp::answer::Judge;
use crate::backend::mcp::request;
use crate::backend::mcp::response::Reader;
use crate::backend::mcp::upstream::Upstream;
use crate::egress::Egress;
use crate::exchange::Frame;
use crate::exchange::Frames;
use crate::model::limits::Limits;
use crate::protocol::call::Outcome;
use crate::protocol::json::compose::Object;
use crate::protocol::methods::Method;

/// How many times deeper than a request a list may be nested: one tool that is too deep is judged by
/// itself, and its siblings stay.
const LIST_DEPTHS: usize = 4;

/// A call from its request to its end. Dropping it closes the connection.
///
/// spec: streamable-http, Cancellation
struct Flight {
    egress: Egress,
    limits: Arc<Limits>,
    judge: Judge,
    clocks: Clocks,
    stage: Stage,
    /// Returned on drop.
    _slot: OwnedSemaphorePermit,
}

enum Stage {
    Send(Request<Full<Bytes>>),
    Read(Reader),
    Over,
}

/// Begins a call; see [`Backend::call`](crate::backend::Backend::call).
pub(super) fn begin(upstream: &Upstream, call: BackendCall) -> Result<Frames<BackendError>, BackendError> {
    if call.deadline <= Instant::now() {
        return Err(BackendError::TimedOut { clock: Clock::Total, sent: false });
    }
    let slot = upstream.slot()?;
    let id = upstream.mint_id();
    let request = request::call(upstream, id, &call)?;
    let flight = Flight {
        egress: upstream.egress.clone(),
        limits: upstream.limits.clone(),
        judge: Judge::new(id, call.meta.progress_token),
        clocks: Clocks::start(upstream.config.idle_timeout, upstream.config.timeout, call.deadline),
        stage: Stage::Send(request),
        _slot: slot,
    };
    Ok(Box::pin(stream::unfold(Some(flight), |flight| async {
        let mut flight = flight?;
        let frame = flight.next().await;
        // What is over is dropped at once: its slot is free before anybody reads the frame.
        let flight = matches!(frame, Frame::Progress(_)).then_some(flight);
        Some((frame, flight))
    })))
}

impl Flight {
    async fn next(&mut self) -> Frame<BackendError> {
        loop {
            let step = match std::mem::replace(&mut self.stage, Stage::Over) {
                Stage::Send(request) => self.send(request).await,
                Stage::Read(reader) => self.read(reader).await,
                Stage::Over => Err(BackendError::Invalid("its answer is over")),
            };
            match step {
                Ok(Heard::Nothing) => {}
                Ok(Heard::Progress(message)) => {
                    self.clocks.progressed();
                    return Frame::Progress(message);
                }
                Ok(Heard::Final(outcome)) => return Frame::End(Ok(outcome)),
                Err(error) => return Frame::End(Err(error)),
            }
        }
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Heard, BackendError> {
        let response = self.clocks.race(self.egress.send(request)).await.map_err(late)?;
        let response = response.map_err(BackendError::from_egress)?;
        self.stage = Stage::Read(Reader::open(response, &self.limits, self.limits.json_depth)?);
        Ok(Heard::Nothing)
    }

    async fn read(&mut self, mut reader: Reader) -> Result<Heard, BackendError> {
        let message = self.clocks.race(reader.message()).await.map_err(late)??;
        let heard = self.judge.hear(&message)?;
        match &heard {
            Heard::Final(_) => reader.finish(),
            Heard::Nothing | Heard::Progress(_) => self.stage = Stage::Read(reader),
        }
        Ok(heard)
    }
}

/// A clock that ran out while connecting counts as sent, too: nobody can tell any more.
fn late(clock: Clock) -> BackendError {
    BackendError::TimedOut { clock, sent: true }
}

/// Sends one request of our own and waits for its outcome, without clocks.
///
/// # Cancel safety
/// Dropping the future closes the connection.
pub(super) async fn ask(
    upstream: &Upstream,
    method: Method,
    params: Object,
) -> Result<Outcome, BackendError> {
    let id = upstream.mint_id();
    let request = request::own(upstream, id, method, params)?;
    let mut judge = Judge::new(id, None);
    let response = upstream.egress.send(request).await.map_err(BackendError::from_egress)?;
    let limits = &upstream.limits;
    let mut reader = Reader::open(response, limits, LIST_DEPTHS * limits.json_depth)?;
    loop {
        if let Heard::Final(outcome) = judge.hear(&reader.message().await?)? {
            reader.finish();
            return Ok(outcome);
        }
    }
}
