//! What a server says in a session beside its answers: its GET stream.
//!
//! Some servers send the progress of a call there, the most common of them among others, and some what they
//! ask in it. So a session listens from the first call on that wants progress or whose client can be asked;
//! what is heard goes to the call whose token it names, and what is asked to the only call there is. What changes is said there, too, and goes to the `watch`es of the session. A server that has no
//! such stream is not asked again in the session.
//!
//! spec: 2025-11-25 basic/transports, Listening for Messages from the Server

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::Weak;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use tokio::sync::mpsc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::sync::DropGuard;

use crate::backend::BackendError;
use crate::backend::legacy::questions::is_question;
use crate::backend::legacy::request;
use crate::backend::legacy::session::Session;
use crate::backend::legacy::watchers::Watchers;
use crate::backend::mcp::request::progress_id;
use crate::backend::mcp::response::Reader;
use crate::backend::meter::Meter;
use crate::model::limits::Limits;
use crate::protocol::json::Json;
use crate::protocol::json::Kind;

/// Most notifications that wait for one call; more are dropped, as the call's own reader drops them.
const WAITING: usize = 64;

/// The ear of one session. It listens as long as the session is there.
pub(super) struct Ear {
    stage: watch::Sender<Stage>,
    wanted: Arc<Wanted>,
    /// Who wants to hear of what changes.
    pub(super) watchers: Watchers,
    /// Whether the server ever had such a stream in this session.
    was_open: AtomicBool,
    /// What the server may still say, however often it ends its stream.
    meter: Arc<Meter>,
    stop: CancellationToken,
    _until_dropped: DropGuard,
}

/// The calls that want to hear of their progress, or may be asked something, by the id of their request.
#[derive(Default)]
struct Wanted(Mutex<HashMap<u64, mpsc::Sender<Json>>>);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nobody listens.
    Shut,
    /// The server has not answered yet.
    Opening,
    /// Nor for so long that nobody waits for it any more. It may only have nothing to say.
    Silent,
    /// What is said is heard.
    Open,
    /// The server has no such stream, or says too much on it.
    Deaf,
}

/// What one call hears. Dropped with the call.
pub(super) struct Hearing {
    id: u64,
    wanted: Arc<Wanted>,
    heard: mpsc::Receiver<Json>,
}

/// What comes first.
pub(super) enum Came<T> {
    /// What was waited for.
    Expected(T),
    /// Something beside the answer.
    Beside(Json),
}

/// Waits for `expected`, or for what is heard meanwhile.
///
/// # Cancel safety
/// As `expected`.
pub(super) async fn either<T>(hearing: Option<&mut Hearing>, expected: impl Future<Output = T>) -> Came<T> {
    let Some(hearing) = hearing else { return Came::Expected(expected.await) };
    tokio::select! {
        biased;
        message = hearing.next() => Came::Beside(message),
        expected = expected => Came::Expected(expected),
    }
}

impl Ear {
    /// Of a session that does not listen yet.
    pub(super) fn new(limits: &Limits) -> Self {
        let stop = CancellationToken::new();
        let until_dropped = stop.clone().drop_guard();
        Self {
            stage: watch::Sender::new(Stage::Shut),
            wanted: Arc::default(),
            watchers: Watchers::default(),
            was_open: AtomicBool::new(false),
            meter: Arc::new(Meter::new(limits)),
            stop,
            _until_dropped: until_dropped,
        }
    }

    /// Goes from one stage to another, if it is in that one.
    fn change(&self, from: Stage, to: Stage) -> bool {
        self.stage.send_if_modified(|stage| {
            let changes = *stage == from;
            if changes {
                *stage = to;
            }
            changes
        })
    }

    /// How its listening goes.
    pub(super) fn stage(&self) -> Stage {
        *self.stage.borrow()
    }

    /// Whether the server ever had such a stream in this session.
    pub(super) fn was_open(&self) -> bool {
        self.was_open.load(Ordering::Relaxed)
    }

    /// What the server may still say.
    pub(super) fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// The messages about the request `id`, from now on.
    pub(super) fn hear(&self, id: u64) -> Hearing {
        let (tell, heard) = mpsc::channel(WAITING);
        self.wanted.calls().insert(id, tell);
        Hearing { id, wanted: self.wanted.clone(), heard }
    }
}

impl Session {
    /// Listens, if it does not yet, and waits until the server has said whether it may, at most
    /// `limits.listen_time`: what is said before that is lost.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing: the listening goes on.
    pub(super) async fn listen(self: &Arc<Self>) {
        let ear = self.ear();
        let begins = ear.change(Stage::Shut, Stage::Opening);
        let around = &self.upstream().around;
        if begins {
            let listening = listen(Arc::downgrade(self), self.open_ear(), ear.stage.clone());
            let stop = (ear.stop.clone(), around.stop.clone());
            around.background(async move {
                tokio::select! {
                    () = listening => {}
                    () = stop.0.cancelled() => {}
                    () = stop.1.cancelled() => {}
                }
            });
        }
        let mut stage = ear.stage.subscribe();
        let answered = stage.wait_for(|stage| *stage != Stage::Opening);
        // Whatever comes of it, the call goes on.
        if tokio::time::timeout(self.upstream().limits.listen_time, answered).await.is_err() {
            ear.change(Stage::Opening, Stage::Silent);
        }
    }
}

/// Listens until the server ends it. Whoever watches hears that it has ended.
async fn listen(
    session: Weak<Session>,
    opening: impl Future<Output = Result<Option<Reader>, BackendError>>,
    stage: watch::Sender<Stage>,
) {
    let over = match opening.await {
        Ok(Some(reader)) => {
            if let Some(session) = session.upgrade() {
                session.ear().was_open.store(true, Ordering::Relaxed);
            }
            let _ = stage.send_replace(Stage::Open);
            hear_all(&session, reader).await
        }
        Ok(None) => Stage::Deaf,
        Err(_) => Stage::Shut,
    };
    // In this order: who watches from now on is not told of this end.
    let _ = stage.send_replace(over);
    if let Some(session) = session.upgrade() {
        session.ear().watchers.end();
    }
}

/// Hears what is said; what becomes of the listening after that.
async fn hear_all(session: &Weak<Session>, mut reader: Reader) -> Stage {
    while let Ok(message) = reader.message().await {
        let Some(session) = session.upgrade() else { return Stage::Shut };
        session.overhear_all(message).await;
        if session.ear().meter.is_spent() {
            break;
        }
    }
    let Some(session) = session.upgrade().filter(|session| session.ear().meter.is_spent()) else {
        return Stage::Shut;
    };
    let (tenant, backend) = (&session.upstream().tenant, &session.upstream().config.name);
    tracing::warn!(%tenant, %backend, "a backend says too much beside its answers; its session does not listen any more");
    Stage::Deaf
}

impl Session {
    /// Takes what came in one event, as long as the server may say it, and lets others go on meanwhile.
    async fn overhear_all(self: &Arc<Self>, message: Json) {
        let meter = self.ear().meter();
        if !(message.kind() == Kind::Array && self.revision().has_batches()) {
            if meter.message() {
                self.overhear(&message);
            }
            return;
        }
        for (n, message) in message.elements().enumerate() {
            if n == self.upstream().limits.upstream_batch {
                meter.spend();
            }
            if !meter.message() {
                return;
            }
            self.overhear(&message);
            tokio::task::yield_now().await;
        }
    }

    /// Takes one message that belongs to no answer. A server's own requests are answered as on the
    /// stream of a call; what it asks a client is asked in the only call in flight. What no call waits
    /// for is dropped.
    pub(super) fn overhear(self: &Arc<Self>, message: &Json) {
        let Some(method) = message.member("method").and_then(|method| method.string()) else { return };
        if let Some(id) = message.member("id") {
            let is_id = id.kind() == Kind::String || id.is_integer();
            let fits = is_id && id.bytes().len() <= self.upstream().limits.id_bytes;
            // spec: row X-08
            if fits && !(is_question(&method) && self.ear().wanted.pass_on_to_only(message)) {
                // Where the server does not take answers as fast as it asks, some of it goes unheard.
                self.respond(request::reply(&id, &method));
            }
            return;
        }
        let token = message.member("params").and_then(|params| params.member("progressToken")?.string());
        match token.as_deref().and_then(progress_id) {
            Some(id) => self.ear().wanted.pass_on(id, message),
            None => self.ear().watchers.hear(message),
        }
    }
}

impl Wanted {
    fn calls(&self) -> MutexGuard<'_, HashMap<u64, mpsc::Sender<Json>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass_on(&self, id: u64, message: &Json) {
        if let Some(call) = self.calls().get(&id) {
            // A call that is not read as fast as this loses some of its progress, and nothing else.
            let _ = call.try_send(message.clone());
        }
    }

    /// Passes a message on if there is one call, and no more than one, that it can be meant for.
    fn pass_on_to_only(&self, message: &Json) -> bool {
        let calls = self.calls();
        let mut all = calls.values();
        match (all.next(), all.next()) {
            (Some(only), None) => only.try_send(message.clone()).is_ok(),
            (Some(_), Some(_)) | (None, _) => false,
        }
    }
}

impl Hearing {
    /// The next message.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Json {
        match self.heard.recv().await {
            Some(message) => message,
            // The sender goes with this value.
            None => std::future::pending().await,
        }
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        self.wanted.calls().remove(&self.id);
    }
}
