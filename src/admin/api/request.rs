//! A request that was admitted, read: its page, its preconditions and its body.

use axum::body::Body;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::HeaderMap;
use http::HeaderName;
use http::header;
use http::request::Parts;
use http_body::Body as _;
use http_body_util::BodyExt;
use http_body_util::LengthLimitError;
use http_body_util::Limited;
use tokio::time::timeout;

use crate::admin::api::Api;
use crate::admin::api::operations::BASE;
use crate::admin::api::operations::Does;
use crate::admin::api::operations::Operation;
use crate::admin::api::problem::Refused;
use crate::config::report::Problem;
use crate::model::limits::Limits;
use crate::model::name::TenantName;
use crate::protocol::json::Json;
use crate::protocol::json::Kind;
use crate::protocol::media;
use crate::store::Revision;
use crate::store::Store;
use crate::store::answers::Answer;
use crate::store::answers::Once;
use crate::store::operators::Operator;
use crate::store::write::Actor;
use crate::store::write::Write;

/// Entries of a page where nothing else is asked for, and the most that may be.
pub const PAGE: usize = 100;
/// See [`PAGE`].
pub const MOST: usize = 500;

/// The longest idempotency key.
const KEY_BYTES: usize = 255;

/// The bytes of a cursor's mark.
const MARK: usize = 32;

/// A request that was admitted.
pub(super) struct Ask<'a> {
    pub(super) api: &'a Api,
    pub(super) store: &'a Store,
    pub(super) operation: &'static Operation,
    /// Who asks.
    pub(super) actor: Actor,
    /// The last name in the path; empty where there is none.
    pub(super) name: String,
    /// Which page of a list.
    pub(super) page: Page,
    /// The state that `If-Match` names; none for whatever it is.
    pub(super) expected: Option<Revision>,
    /// The body.
    pub(super) body: Json,
    tenant: Option<TenantName>,
    /// The `Idempotency-Key`.
    key: Option<String>,
    /// What such a key belongs to.
    request: Vec<u8>,
}

/// Which page of a list.
#[derive(Debug, Default)]
pub(super) struct Page {
    /// At most so many.
    pub(super) limit: usize,
    /// From behind this one on.
    pub(super) after: Option<String>,
}

impl<'a> Ask<'a> {
    /// Reads what the operation takes.
    pub(super) async fn read(
        api: &'a Api,
        store: &'a Store,
        operator: Operator,
        operation: &'static Operation,
        (tenant, name): (Option<TenantName>, String),
        parts: &Parts,
        body: Body,
    ) -> Result<Self, Refused> {
        let page = page(api, operation, parts)?;
        let expected = match operation.is_conditional() {
            true => expected(&parts.headers)?,
            false => None,
        };
        let key = idempotency_key(operation, &parts.headers)?;
        let (body, request) = match operation.has_body() {
            true => {
                media::content(&parts.headers).map_err(|_| Refused::MediaType)?;
                let bytes = gather(body, &api.limits).await?;
                let line = format!("{} {}\n", parts.method, parts.uri.path());
                let request = [line.as_bytes(), &bytes].concat();
                (Json::parse(bytes, api.limits.json_depth).map_err(Refused::Json)?, request)
            }
            false => (Json::null(), Vec::new()),
        };
        let actor = Actor::Operator(operator.id);
        Ok(Self { api, store, operation, actor, name, page, expected, body, tenant, key, request })
    }

    /// The tenant that it is about.
    pub(super) fn tenant(&self) -> Result<&TenantName, Refused> {
        self.tenant.as_ref().ok_or(Refused::NotFound)
    }

    /// The same, where it may be the deployment.
    pub(super) fn whose(&self) -> Option<&TenantName> {
        self.tenant.as_ref()
    }

    /// The write that makes something, and is answered so.
    pub(super) fn write<'w>(&'w self, answer: &'w (dyn Fn(Revision) -> Answer + Sync)) -> Write<'w> {
        let once = self.key.as_deref().map(|key| Once { key, request: &self.request, answer });
        Write { once, ..Write::by(&self.actor) }
    }

    /// The cursor of the page behind `last` in this list.
    pub(super) fn cursor(&self, last: &str) -> String {
        let mark = self.api.keys.mark(&place(self.operation, self.whose(), last));
        URL_SAFE_NO_PAD.encode([&mark, last.as_bytes()].concat())
    }

    /// The members of the body, all of which are among `known`.
    pub(super) fn form(&self, known: &[&str]) -> Form<'_> {
        let mut problems = Vec::new();
        if !self.body.is_object() {
            problems.push(Problem::new("", "", "expected a JSON object"));
        }
        for (key, _) in self.body.members().filter(|(key, _)| !known.contains(&&**key)) {
            let hint = format!("known here: {}", known.join(", "));
            problems.push(Problem::new("", &key, "unknown key").hint(hint));
        }
        Form { body: &self.body, problems }
    }
}

/// The members of a body that are being read.
pub(super) struct Form<'b> {
    body: &'b Json,
    problems: Vec<Problem>,
}

impl Form<'_> {
    /// Text, which has to be there.
    pub(super) fn text(&mut self, key: &str) -> Option<String> {
        let text = self.need(key)?.string();
        text.or_else(|| self.refuse(key, "expected text"))
    }

    /// Text, or nothing.
    pub(super) fn optional(&mut self, key: &str) -> Option<String> {
        let value = self.body.member(key).filter(|value| value.kind() != Kind::Null)?;
        value.string().or_else(|| self.refuse(key, "expected text"))
    }

    /// An object, which has to be there.
    pub(super) fn object(&mut self, key: &str) -> Option<Json> {
        let value = self.need(key)?;
        if value.is_object() { Some(value) } else { self.refuse(key, "expected an object") }
    }

    /// Text that something is made of, which has to be there.
    pub(super) fn parsed<T, E: ToString>(
        &mut self,
        key: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = self.text(key)?;
        match parse(&text) {
            Ok(parsed) => Some(parsed),
            Err(error) => self.refuse(key, &error.to_string()),
        }
    }

    /// Notes a problem.
    pub(super) fn refuse<T>(&mut self, key: &str, message: &str) -> Option<T> {
        self.problems.push(Problem::new("", key, message));
        None
    }

    /// Notes problems that were found elsewhere.
    pub(super) fn extend(&mut self, problems: Vec<Problem>) {
        self.problems.extend(problems);
    }

    /// What was read, if nothing was wrong.
    pub(super) fn finish<T>(self, read: Option<T>) -> Result<T, Refused> {
        match read {
            Some(read) if self.problems.is_empty() => Ok(read),
            _ => Err(Refused::Invalid(self.problems)),
        }
    }

    fn need(&mut self, key: &str) -> Option<Json> {
        self.body.member(key).or_else(|| self.refuse(key, "missing"))
    }
}

/// What a cursor's mark is of. Nothing else that is marked begins like this.
fn place(operation: &Operation, tenant: Option<&TenantName>, last: &str) -> Vec<u8> {
    let tenant = tenant.map_or("", TenantName::as_str);
    format!("cursor\0{BASE}{}\0{tenant}\0{last}", operation.path).into_bytes()
}

/// Reads the query: `limit` and `cursor` of a list, and nothing else anywhere.
fn page(api: &Api, operation: &Operation, parts: &Parts) -> Result<Page, Refused> {
    let tenant = || parts.uri.path().strip_prefix(BASE).and_then(|path| operation.names(path));
    let mut page = Page { limit: PAGE, after: None };
    let mut problems = Vec::new();
    let mut seen = Vec::new();
    for (name, value) in url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()) {
        let message = match &*name {
            _ if seen.contains(&name) => Some("the parameter is there twice".to_owned()),
            "limit" if operation.is_list() => match value.parse().ok().filter(|n| (1..=MOST).contains(n)) {
                Some(limit) => {
                    page.limit = limit;
                    None
                }
                None => Some(format!("expected a whole number from 1 to {MOST}")),
            },
            "cursor" if operation.is_list() => {
                let tenant = tenant().and_then(|names| TenantName::new(names.first()?).ok());
                page.after = open(api, operation, tenant.as_ref(), &value);
                page.after.is_none().then(|| "this is no cursor of this list".to_owned())
            }
            _ => Some("unknown parameter".to_owned()),
        };
        problems.extend(message.map(|message| Problem::new("", &name, message)));
        seen.push(name);
    }
    if problems.is_empty() { Ok(page) } else { Err(Refused::Invalid(problems)) }
}

/// The place that a cursor stands for, if it is one of this list.
fn open(api: &Api, operation: &Operation, tenant: Option<&TenantName>, cursor: &str) -> Option<String> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    let (mark, last) = bytes.split_at_checked(MARK)?;
    let last = std::str::from_utf8(last).ok()?;
    api.keys.is_mark(&place(operation, tenant, last), mark).then(|| last.to_owned())
}

/// The state that `If-Match` names; none for `*`. A tag that is none of ours is nobody's state.
// spec: RFC 9110, 13.1.1; RFC 6585, 3
fn expected(headers: &HeaderMap) -> Result<Option<Revision>, Refused> {
    let mut values = headers.get_all(header::IF_MATCH).iter();
    let (value, None) = (values.next().ok_or(Refused::NoMatch)?, values.next()) else {
        return Err(Refused::invalid("If-Match", "expected one entity tag, or `*`"));
    };
    if value == "*" {
        return Ok(None);
    }
    let tag = value.to_str().ok().and_then(|text| text.strip_prefix('"')?.strip_suffix('"'));
    let revision = tag.and_then(|text| text.parse().ok()).ok_or(Refused::Stale)?;
    Ok(Some(Revision(revision)))
}

/// The `Idempotency-Key` of a request that makes something.
// spec: draft-ietf-httpapi-idempotency-key-header
fn idempotency_key(operation: &Operation, headers: &HeaderMap) -> Result<Option<String>, Refused> {
    const NAME: HeaderName = HeaderName::from_static("idempotency-key");
    if operation.method != http::Method::POST {
        return Ok(None);
    }
    let mut values = headers.get_all(NAME).iter();
    let (value, more) = (values.next(), values.next());
    let Some(value) = value else { return Ok(None) };
    if operation.does == Does::CreateOperator {
        let message = "not taken here: the answer holds a key, and is never kept";
        return Err(Refused::invalid("Idempotency-Key", message));
    }
    let text = value.to_str().ok().filter(|text| !text.is_empty() && text.len() <= KEY_BYTES);
    match text.filter(|_| more.is_none()) {
        Some(text) => Ok(Some(text.to_owned())),
        None => {
            let message = format!("expected one, of 1 to {KEY_BYTES} visible characters");
            Err(Refused::invalid("Idempotency-Key", message))
        }
    }
}

/// The body, within its length and time.
async fn gather(body: Body, limits: &Limits) -> Result<Bytes, Refused> {
    if body.size_hint().lower() > limits.admin_body_bytes as u64 {
        return Err(Refused::TooLong);
    }
    let whole = timeout(limits.body_time, Limited::new(body, limits.admin_body_bytes).collect()).await;
    match whole.map_err(|_| Refused::Late)? {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Refused::TooLong),
        Err(_) => Err(Refused::Broken),
    }
}
