//! The listener: who comes in, and that nobody is left at the door when it closes.
//!
//! A client is connected as soon as the kernel has queued it, and may have sent its request. A
//! listener that closes resets its queue, so before that everybody queued is taken. Who comes
//! between the last look and the close is still reset.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::sleep;

use crate::edge::accept::crowd::Crowd;

// Long enough not to spin while file descriptors are out, short enough to recover at once.
const ACCEPT_BACK_OFF: Duration = Duration::from_millis(200);
// Under load the queue might never be empty; it is never longer.
const LONGEST_QUEUE: usize = 4096;

/// A connection and its slot.
pub(super) type Entered = (TcpStream, OwnedSemaphorePermit);

/// The listener, and who came in.
pub(super) struct Gate {
    listener: TcpListener,
    crowd: Crowd,
    // Accepted, without a slot yet.
    waiting: VecDeque<TcpStream>,
}

impl Gate {
    /// Lets `most` connections of `listener` in at a time.
    pub(super) fn new(listener: TcpListener, most: usize) -> Self {
        Self { listener, crowd: Crowd::new(most), waiting: VecDeque::new() }
    }

    /// Who is in.
    pub(super) fn crowd(&mut self) -> &mut Crowd {
        &mut self.crowd
    }

    /// The next connection and its slot. While there is none for it, others wait in the kernel's
    /// queue.
    ///
    /// # Cancel safety
    /// An accepted connection is kept for the next call.
    pub(super) async fn next(&mut self) -> Entered {
        let stream = match self.waiting.pop_front() {
            Some(stream) => stream,
            None => self.accept().await,
        };
        // Kept here while a slot is waited for: it may be for longer than the caller waits.
        self.waiting.push_front(stream);
        let slot = self.crowd.slot().await;
        (self.waiting.pop_front().expect("pushed above"), slot)
    }

    /// Closes the listener; the connections that its queue held still need a slot.
    pub(super) fn close(mut self) -> (Crowd, VecDeque<TcpStream>) {
        // Not asked through the runtime, which may not know yet of the last to come.
        match self.listener.into_std() {
            Ok(listener) => self.waiting.extend(queued(&listener)),
            Err(error) => tracing::warn!(%error, "the last connections were not taken"),
        }
        (self.crowd, self.waiting)
    }

    async fn accept(&self) -> TcpStream {
        let mut failing = false;
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    // Else every event of a stream waits for the acknowledgement of the last.
                    if stream.set_nodelay(true).is_ok() {
                        return stream;
                    }
                }
                Err(error) if is_the_clients(&error) => {}
                Err(error) => {
                    if !failing {
                        tracing::error!(
                            error = &error as &dyn std::error::Error,
                            "cannot accept connections"
                        );
                    }
                    failing = true;
                    sleep(ACCEPT_BACK_OFF).await;
                }
            }
        }
    }
}

/// What `listener`, which does not block, has in its queue.
fn queued(listener: &std::net::TcpListener) -> VecDeque<TcpStream> {
    let mut streams = VecDeque::new();
    while streams.len() < LONGEST_QUEUE {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if is_the_clients(&error) => continue,
            Err(error) => {
                if error.kind() != io::ErrorKind::WouldBlock {
                    tracing::error!(%error, "cannot accept the last connections");
                }
                break;
            }
        };
        let fitted = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
        streams.extend(fitted.and_then(|()| TcpStream::from_std(stream)).ok());
    }
    streams
}

/// One client left while it waited; nothing is wrong with the listener.
fn is_the_clients(error: &io::Error) -> bool {
    use io::ErrorKind::ConnectionAborted;
    use io::ErrorKind::ConnectionRefused;
    use io::ErrorKind::ConnectionReset;
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
