//! Names to addresses, without one slow name taking resolution from all the others.
//!
//! The system's resolver blocks a thread, for half a minute where a name's servers are silent, and
//! nothing can call it back. So a name is looked up by one task at a time, whose answer everybody
//! who asks meanwhile gets; a caller that stops waiting starts nothing anew.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

/// Most lookups in flight in the process; further names wait. A fraction of the runtime's 512
/// threads for blocking work, so that files and the rest always find one.
const LOOKUPS: usize = 128;

/// How long addresses are good for: enough that a burst of connections asks once, and short
/// beside the time to live of any record. They are judged at each connection all the same.
const FOUND_TIME: Duration = Duration::from_secs(5);

/// How long a failure is.
const FAILED_TIME: Duration = Duration::from_secs(1);

type Found = Result<Arc<[IpAddr]>, Arc<io::Error>>;
type Lookup = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

/// Looks names up for every connection of the process.
pub(super) struct Resolver {
    lookup: Arc<Lookup>,
    free: Arc<Semaphore>,
    names: Mutex<HashMap<Arc<str>, Name>>,
}

/// A name that is being looked up, or was a moment ago.
struct Name {
    answer: watch::Receiver<Option<Answer>>,
    _task: AbortOnDropHandle<()>,
}

#[derive(Clone)]
struct Answer {
    found: Found,
    good_until: Instant,
}

impl Resolver {
    /// The system's resolver.
    pub fn system() -> Arc<Self> {
        Self::new(|name| Ok((name, 0).to_socket_addrs()?.map(|address| address.ip()).collect()))
    }

    /// One that asks `lookup`, which may block.
    pub fn new(lookup: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static) -> Arc<Self> {
        let free = Arc::new(Semaphore::new(LOOKUPS));
        Arc::new(Self { lookup: Arc::new(lookup), free, names: Mutex::default() })
    }

    /// The addresses of `name`, in the resolver's order.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the lookup to the others that wait for it.
    pub async fn addresses(&self, name: &str) -> Found {
        let mut answer = self.ask(name);
        let answer = answer.wait_for(Option::is_some).await.map(|answer| answer.clone());
        match answer {
            Ok(Some(answer)) => answer.found,
            _ => Err(Arc::new(io::Error::other("the lookup ended without an answer"))),
        }
    }

    /// Joins the lookup of `name`, or begins one.
    fn ask(&self, name: &str) -> watch::Receiver<Option<Answer>> {
        let name: Arc<str> = name.to_ascii_lowercase().into();
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = names.get(&name).filter(|known| known.is_good()) {
            return known.answer.clone();
        }
        names.retain(|_, known| known.is_good());
        let (sender, answer) = watch::channel(None);
        let (lookup, free, asked) = (self.lookup.clone(), self.free.clone(), name.clone());
        let task = tokio::spawn(async move {
            let found = look_up(lookup, free, asked).await;
            let time = if found.is_ok() { FOUND_TIME } else { FAILED_TIME };
            sender.send_replace(Some(Answer { found, good_until: Instant::now() + time }));
        });
        names.insert(name, Name { answer: answer.clone(), _task: AbortOnDropHandle::new(task) });
        answer
    }
}

impl Name {
    /// Whether it is still being looked up, or its answer may still be used.
    fn is_good(&self) -> bool {
        match &*self.answer.borrow() {
            Some(answer) => Instant::now() < answer.good_until,
            // Without a sender the lookup has ended without an answer.
            None => self.answer.has_changed().is_ok(),
        }
    }
}

async fn look_up(lookup: Arc<Lookup>, free: Arc<Semaphore>, name: Arc<str>) -> Found {
    let slot = free.acquire_owned().await.expect("the semaphore is never closed");
    // The thread keeps the slot: it is taken until the system answers, whoever still waits.
    let looked = tokio::task::spawn_blocking(move || {
        let found = lookup(&name);
        drop(slot);
        found
    });
    match looked.await {
        Ok(Ok(found)) => Ok(found.into()),
        Ok(Err(error)) => Err(Arc::new(error)),
        Err(ended) => Err(Arc::new(io::Error::other(ended))),
    }
}

#[cfg(test)]
mod tests;
