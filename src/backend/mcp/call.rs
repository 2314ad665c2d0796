//! A request from its beginning to its end, in whichever era its server speaks; two clocks.

use std::sync::Arc;

use futures_util::stream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::backend::Account;
use crate::backend::BackendCall;
use crate::backend::BackendError;
use crate::backend::clock::Clock;
use crate::backend::clock::Clocks;
use crate::backend::legacy;
use crate::backend::legacy::resumed::Resumed;
use crate::backend::legacy::ticket::Ticket;
use crate::backend::mcp::flight;
use crate::backend::mcp::probe::Era;
use crate::backend::mcp::probe::Probe;
use crate::backend::waiting::Interruption;
use crate::exchange::Frame;
use crate::exchange::Frames;
use crate::model::limits::Limits;
use crate::protocol::call::Outcome;
use crate::protocol::json::Json;
use crate::protocol::methods::Method;

/// How many times deeper than a request a list may be nested: one tool that is too deep is judged by
/// itself, and its siblings stay.
const LIST_DEPTHS: usize = 4;

/// What a server is asked.
pub(in crate::backend) enum Question {
    /// A caller's request.
    Caller(Box<BackendCall>),
    /// A request for a list, on this account, with these `params`.
    Own(Account, Method, Json),
}

impl Question {
    /// How deep its answer may be nested.
    pub(in crate::backend) fn depth(&self, limits: &Limits) -> usize {
        match self {
            Self::Caller(_) => limits.json_depth,
            Self::Own(..) => LIST_DEPTHS * limits.json_depth,
        }
    }

    /// Whether it is about a task that goes on already.
    fn is_about_a_task(&self) -> bool {
        match self {
            Self::Caller(call) => call.method.is_about_a_task(),
            Self::Own(..) => false,
        }
    }

    /// Whether asking twice does no harm.
    fn is_safe(&self) -> bool {
        match self {
            Self::Caller(call) => call.method != Method::ToolsCall,
            Self::Own(..) => true,
        }
    }
}

/// One step of a request in flight.
pub(in crate::backend) enum Step {
    /// A frame of its answer.
    Frame(Frame<BackendError>),
    /// The server speaks as one of the other era does.
    Astray(Astray),
}

/// What came from a server that may speak the other era.
pub(in crate::backend) struct Astray {
    /// Whether it surely did nothing.
    pub(in crate::backend) untouched: bool,
    /// How the request ends if there is nothing better.
    pub(in crate::backend) end: Result<Outcome, BackendError>,
}

impl From<BackendError> for Step {
    fn from(error: BackendError) -> Self {
        Self::Frame(Frame::End(Err(error)))
    }
}

/// A request on its way. Dropping it before its end cancels it.
pub(super) struct Voyage {
    probe: Arc<Probe>,
    question: Question,
    clocks: Clocks,
    leg: Leg,
    /// Whether it went on in the other era once.
    turned: bool,
    /// Returned on drop; a leg of the handshake era has it for as long as that goes on.
    slot: Option<OwnedSemaphorePermit>,
}

enum Leg {
    Modern(Box<flight::Flight>),
    Handshake(Box<legacy::flight::Flight>),
    /// It goes on where it waited for its client's answers.
    Resumed(Resumed),
}

/// Begins a call; see [`Backend::call`](crate::backend::Backend::call).
pub(super) async fn begin(
    probe: &Arc<Probe>,
    call: BackendCall,
) -> Result<Frames<BackendError>, BackendError> {
    if call.deadline <= Instant::now() {
        return Err(BackendError::TimedOut { clock: Clock::Total, sent: false });
    }
    let upstream = probe.upstream();
    let clocks = Clocks::start(upstream.config.idle_timeout, upstream.config.timeout, call.deadline);
    let voyage = match call.state.as_deref().and_then(Ticket::read) {
        Some(ticket) => Voyage::resume(probe, &ticket, call, clocks),
        None => {
            let slot = upstream.slot()?;
            Voyage::begin(probe, Question::Caller(Box::new(call)), clocks, Some(slot)).await?
        }
    };
    let voyage = Box::new(voyage);
    Ok(Box::pin(stream::unfold(Some(voyage), |voyage| async {
        let mut voyage = voyage?;
        let frame = voyage.next().await;
        // What is over is dropped at once: its slot is free before anybody reads the frame.
        let voyage = matches!(frame, Frame::Notice(_)).then_some(voyage);
        Some((frame, voyage))
    })))
}

/// Asks on this account and waits for the outcome, at most `limits.list_time`.
///
/// # Cancel safety
/// Dropping the future cancels the request.
pub(super) async fn ask(
    probe: &Arc<Probe>,
    account: &Account,
    method: Method,
    params: Json,
) -> Result<Outcome, BackendError> {
    let time = probe.upstream().limits.list_time;
    let clocks = Clocks::start(time, time, Instant::now() + time);
    let question = Question::Own(account.clone(), method, params);
    let mut voyage = Voyage::begin(probe, question, clocks, None).await?;
    loop {
        if let Frame::End(end) = voyage.next().await {
            return end;
        }
    }
}

impl Voyage {
    async fn begin(
        probe: &Arc<Probe>,
        question: Question,
        clocks: Clocks,
        mut slot: Option<OwnedSemaphorePermit>,
    ) -> Result<Self, BackendError> {
        let era = match probe.known() {
            Some(era) => era,
            None => clocks.race(probe.era()).await.map_err(unsent)??,
        };
        let leg = Leg::new(era, probe, &question, &mut slot)?;
        Ok(Self { probe: probe.clone(), question, clocks, leg, turned: false, slot })
    }

    /// Goes on with a call that waits for these answers. It has kept its slot.
    fn resume(probe: &Arc<Probe>, ticket: &Ticket, call: BackendCall, clocks: Clocks) -> Self {
        let leg = Leg::Resumed(Resumed::new(probe.pool(), ticket, &call));
        let question = Question::Caller(Box::new(call));
        Self { probe: probe.clone(), question, clocks, leg, turned: false, slot: None }
    }

    async fn next(&mut self) -> Frame<BackendError> {
        loop {
            let step = match (&mut self.leg, &self.question) {
                (Leg::Modern(flight), _) => flight.next(&mut self.clocks).await,
                (Leg::Handshake(flight), _) => flight.next(&mut self.clocks).await,
                (Leg::Resumed(resumed), Question::Caller(call)) => resumed.next(call, &mut self.clocks).await,
                (Leg::Resumed(_), Question::Own(..)) => BackendError::Invalid("it asks the gateway").into(),
            };
            match step {
                Step::Frame(Frame::End(Err(BackendError::Interrupted(Interruption::Lost))))
                    if self.question.is_safe() && matches!(self.leg, Leg::Resumed(_)) =>
                {
                    if let Err(error) = self.ask_anew().await {
                        return Frame::End(Err(error));
                    }
                }
                Step::Frame(frame) => return frame,
                Step::Astray(astray) => {
                    if let Err(end) = self.turn(astray).await {
                        return Frame::End(end);
                    }
                }
            }
        }
    }

    /// Asks once more what was lost while it waited for its client, whose answers are there when the same
    /// is asked again.
    ///
    /// spec: requirements N.3, owner gone
    async fn ask_anew(&mut self) -> Result<(), BackendError> {
        let era = self.clocks.race(self.probe.era()).await.map_err(unsent)??;
        let mut slot = Some(self.probe.upstream().slot()?);
        self.leg = Leg::new(era, &self.probe, &self.question, &mut slot)?;
        self.slot = slot;
        Ok(())
    }

    /// Forgets the era that was contradicted, and goes on in the other one if that is what the server
    /// speaks now and nothing can happen twice.
    async fn turn(&mut self, astray: Astray) -> Result<(), Result<Outcome, BackendError>> {
        let era = self.leg.era();
        // Lists that show it are on their way to what there is now.
        if self.probe.forget(era) && matches!(self.question, Question::Caller(_)) {
            self.probe.upstream().suspect();
        }
        if self.turned || !(astray.untouched || self.question.is_safe()) {
            return Err(astray.end);
        }
        self.turned = true;
        let other = match self.clocks.race(self.probe.era()).await {
            Ok(Ok(other)) if other != era => other,
            Ok(_) | Err(_) => return Err(astray.end),
        };
        let mut slot = match &mut self.leg {
            Leg::Modern(_) | Leg::Resumed(_) => self.slot.take(),
            Leg::Handshake(flight) => flight.take_slot(),
        };
        self.leg = Leg::new(other, &self.probe, &self.question, &mut slot).map_err(Err)?;
        self.slot = slot;
        Ok(())
    }
}

impl Leg {
    fn new(
        era: Era,
        probe: &Probe,
        question: &Question,
        slot: &mut Option<OwnedSemaphorePermit>,
    ) -> Result<Self, BackendError> {
        Ok(match era {
            Era::Modern => Self::Modern(Box::new(flight::Flight::new(probe.upstream(), question)?)),
            // spec: SEP-2663, Backward Compatibility
            Era::Handshake if question.is_about_a_task() => {
                return Err(BackendError::NotOpened("it does not speak the revision that its tasks are of"));
            }
            Era::Handshake => {
                Self::Handshake(Box::new(legacy::flight::Flight::new(probe.pool(), question, slot.take())))
            }
        })
    }

    fn era(&self) -> Era {
        match self {
            Self::Modern(_) => Era::Modern,
            Self::Handshake(_) | Self::Resumed(_) => Era::Handshake,
        }
    }
}

/// A clock that ran out before there was anything to send to.
fn unsent(clock: Clock) -> BackendError {
    BackendError::TimedOut { clock, sent: false }
}
