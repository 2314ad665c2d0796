//! Listening: `subscriptions/listen`, and what is its like in a session.

use std::collections::HashMap;
use std::sync::Arc;

use crate::app::App;
use crate::catalog::viewer::Viewer;
use crate::error::Refusal;
use crate::exchange::Exchange;
use crate::exchange::Reply;
use crate::legacy::LegacyError;
use crate::legacy::session::Session;
use crate::listen::ListenError;
use crate::listen::task;
use crate::listen::writer;
use crate::listen::writer::Form;
use crate::pipeline::Party;
use crate::pipeline::standing::Seat;
use crate::pipeline::standing::Standing;
use crate::protocol::call::Outcome;
use crate::protocol::json::compose::Object;
use crate::router;
use crate::router::RouteError;
use crate::router::listen::Filter;
use crate::router::listen::is_heard;
use crate::router::listen::readable;

/// The answer to `subscriptions/listen`: what of `filter` is honoured, and then what changes.
///
/// spec: patterns/subscriptions
pub(super) async fn answer(
    app: &Arc<App>,
    exchange: &Exchange,
    filter: Filter,
) -> Result<Reply<Refusal>, Refusal> {
    filter.check(&app.limits)?;
    let Exchange { caller, endpoint, tenant, call, .. } = exchange;
    let seat = Seat::Listen { _place: app.hub.stream_place(caller)?, _counted: app.metrics.listen_open() };
    // Before anything is looked up: what changes from now on is told after the acknowledgement.
    let member = app.hub.join(caller, filter.kinds);
    let snapshot = app.catalogs.snapshot(tenant, Viewer::of(exchange)).await;
    let mut uris = Vec::with_capacity(filter.uris.len());
    for uri in filter.uris {
        // To look one up may take a while.
        tokio::task::yield_now().await;
        // What it may not read is not honoured, whatever the reason is.
        if let Ok(entry) = readable(&snapshot, caller, tenant, &uri)
            && is_heard(&entry)
        {
            member.want(&uri, &entry)?;
            uris.push(uri);
        }
    }
    // An id that does not open is left out like one of a task that never was.
    let mut tasks = HashMap::new();
    for id in filter.tasks {
        let found = router::task::find(&snapshot, tenant, caller, &id, &app.keys, app.clock.now());
        let Some(entry) = found.map(|found| task::entry(&found.home, &found.own)) else { continue };
        if !tasks.contains_key(&entry.own) {
            member.want(&entry.own, &entry)?;
            tasks.insert(entry.own.clone(), id);
        }
    }
    drop(snapshot);
    let wanted = uris.into_iter().chain(tasks.keys().cloned()).collect();
    let (kept, uris): (Vec<_>, Vec<_>) =
        member.honoured(wanted).await.into_iter().partition(|one| task::read(one).is_some());
    tasks.retain(|key, _| kept.contains(key));
    let told = tasks.values().cloned().collect();
    let party = Party { caller: caller.clone(), tenant: tenant.clone(), endpoint: endpoint.clone() };
    let capabilities = call.meta.capabilities.alone();
    let standing =
        Standing::new(app.clone(), party, capabilities, caller.good_until(), seat).with_tasks(tasks);
    let form = Form::Subscription { id: call.id.as_json().alone(), kinds: filter.kinds, uris, tasks: told };
    Ok(Reply::Notices(writer::write(Arc::new(member), standing, form)))
}

/// The stream that a GET opens in a session.
///
/// spec: 2025-11-25 basic/transports, Listening for Messages from the Server
pub(super) fn stream(app: &Arc<App>, party: Party, session: &Session) -> Result<Reply<Refusal>, Refusal> {
    let place = app.hub.stream_place(&party.caller)?;
    let listening = app.sessions.listen(&app.hub, &party.caller, session, place)?;
    let member = listening.member().clone();
    let end = session.expires_at.min(party.caller.good_until());
    let capabilities = session.capabilities.alone();
    let standing = Standing::new(app.clone(), party, capabilities, end, Seat::Session(listening));
    Ok(Reply::Notices(writer::write(member, standing, Form::Session)))
}

/// The answer to `resources/subscribe`.
///
/// spec: 2025-11-25 server/resources, Subscriptions
pub(super) async fn subscribe(
    app: &Arc<App>,
    party: &Party,
    session: &Session,
    uri: Arc<str>,
) -> Result<Reply<Refusal>, Refusal> {
    let viewer = Viewer { caller: &party.caller, capabilities: &session.capabilities };
    let snapshot = app.catalogs.snapshot(&party.tenant, viewer).await;
    let entry = match readable(&snapshot, &party.caller, &party.tenant, &uri) {
        Err(RouteError::UnknownResource { uri }) => return Err(LegacyError::NoSuchResource(uri).into()),
        found => found?,
    };
    let unheard = RouteError::InvalidParams("the resource's backend does not say when it changes");
    if !is_heard(&entry) {
        return Err(unheard.into());
    }
    let member = app.sessions.subscribe(&app.hub, &party.caller, session, &uri, &entry)?;
    let is_full = member.waits(&uri);
    if member.honoured(vec![uri.clone()]).await.is_empty() {
        app.sessions.unsubscribe(session, &uri);
        if is_full {
            return Err(LegacyError::from(ListenError::BackendFull).into());
        }
        return Err(unheard.into());
    }
    Ok(done())
}

/// The answer to `resources/unsubscribe`.
pub(super) fn unsubscribe(app: &App, session: &Session, uri: &str) -> Reply<Refusal> {
    app.sessions.unsubscribe(session, uri);
    done()
}

/// An empty result.
pub(super) fn done() -> Reply<Refusal> {
    Reply::Once(Outcome::Result(Object::new().finish()))
}
