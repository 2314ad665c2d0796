//! A client's answers to what a server asked in a call: the call goes on, in the place where it waited.

use std::sync::Arc;

use tokio::sync::OwnedMutexGuard;

use crate::backend::BackendCall;
use crate::backend::BackendError;
use crate::backend::clock::Clocks;
use crate::backend::legacy::flight::late;
use crate::backend::legacy::parking::End;
use crate::backend::legacy::parking::Found;
use crate::backend::legacy::parking::Going;
use crate::backend::legacy::parking::Round;
use crate::backend::legacy::pool::Pool;
use crate::backend::legacy::ticket::Ticket;
use crate::backend::mcp::call::Step;
use crate::exchange::Frame;

/// One request that brings answers. Of several with the same answers one is told what is said meanwhile;
/// when it leaves, the next one is. Dropping the last one cancels the call.
pub(in crate::backend) struct Resumed(Stage);

enum Stage {
    /// It has its turn when it has the call.
    Waits(Arc<Round>),
    /// It has the call.
    Drives(OwnedMutexGuard<Going>, Arc<Round>),
    /// It ended so.
    Ended(End),
    Over,
}

const OVER: BackendError = BackendError::Invalid("its answer is over");

impl Resumed {
    /// Of this request, whose client was given this ticket. From now on nobody else takes the round.
    pub(in crate::backend) fn new(pool: &Arc<Pool>, ticket: &Ticket, call: &BackendCall) -> Self {
        Self(match pool.find_round(ticket, call) {
            Found::Goes(round) => Stage::Waits(round),
            Found::Ended(end) => Stage::Ended(end),
        })
    }

    /// What comes next.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(in crate::backend) async fn next(&mut self, call: &BackendCall, clocks: &mut Clocks) -> Step {
        loop {
            match &mut self.0 {
                Stage::Over => return Step::Frame(Frame::End(Err(OVER))),
                Stage::Waits(round) => {
                    let turn = round.going.clone().lock_owned();
                    let mut going = match clocks.race_total(turn).await {
                        Ok(going) => going,
                        Err(clock) => return late(clock, true).into(),
                    };
                    clocks.progressed();
                    match &mut *going {
                        Going::Over(end) => self.0 = Stage::Ended(end.clone()),
                        Going::On(flight) => {
                            flight.follow(call);
                            self.0 = Stage::Drives(going, round.clone());
                        }
                    }
                }
                Stage::Drives(going, round) => {
                    let Going::On(flight) = &mut **going else { return Step::Frame(Frame::End(Err(OVER))) };
                    let end = match flight.next(clocks).await {
                        Step::Frame(Frame::Notice(message)) => return Step::Frame(Frame::Notice(message)),
                        Step::Frame(Frame::End(end)) => end,
                        // It was asked in a session: whatever it speaks now, this is what came of the call.
                        Step::Astray(astray) => astray.end,
                    };
                    **going = Going::Over(end.clone());
                    round.ended(end.clone());
                    self.0 = Stage::Ended(end);
                }
                Stage::Ended(_) => {
                    let Stage::Ended(end) = std::mem::replace(&mut self.0, Stage::Over) else { continue };
                    return Step::Frame(Frame::End(end));
                }
            }
        }
    }
}
