//! Step 21: arguments and results are checked against their tools' schemas.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::Weak;

use futures_util::FutureExt;
use futures_util::StreamExt;
use tokio::sync::Semaphore;
use tokio::task::JoinError;

use crate::catalog::schema::Validator;
use crate::exchange::Frame;
use crate::exchange::Reply;
use crate::methods::failed;
use crate::model::name::TenantName;
use crate::protocol::call::Outcome;
use crate::protocol::json::Json;

/// How many checks that may take long are made at a time: a value of 4 MiB can weigh tens of them
/// while it is checked.
const SLOW: usize = 2;

/// The checks that go on in a process. What may take long is done on threads that may be held up, a few
/// at a time, and of each tenant one.
pub struct Checks {
    slots: Arc<Semaphore>,
    /// Whose turn it is among the checks of one tenant, for each that has some: a tenant waits for
    /// its own first, so that it takes one slot at a time and others get the next.
    turns: Mutex<HashMap<TenantName, Weak<Semaphore>>>,
}

impl Default for Checks {
    fn default() -> Self {
        Self { slots: Arc::new(Semaphore::new(SLOW)), turns: Mutex::default() }
    }
}

impl Checks {
    /// Checks the arguments of a call; none are an empty object.
    ///
    /// # Cancel safety
    /// Dropping the future leaves a check that has begun to its end, which is bounded.
    pub(super) async fn arguments(
        &self,
        tenant: &TenantName,
        validator: &Arc<Validator>,
        arguments: Option<&Json>,
    ) -> Result<(), String> {
        match arguments.filter(|arguments| validator.is_slow(arguments)) {
            None => validator.check(arguments),
            Some(slow) => {
                let (validator, slow) = (validator.clone(), slow.clone());
                self.slowly(tenant, move || validator.check(Some(&slow))).await
            }
        }
    }

    /// A reply whose result, once it is there, fits the tool's output schema, or is an error that says why
    /// it does not.
    ///
    /// # Cancel safety
    /// Dropping the future, or the stream in the reply, drops `reply`, and leaves a check that has begun
    /// to its end.
    pub(super) async fn reply<E: Send + 'static>(
        self: &Arc<Self>,
        tenant: &TenantName,
        validator: &Arc<Validator>,
        reply: Reply<E>,
    ) -> Reply<E> {
        match reply {
            Reply::Once(outcome) => Reply::Once(self.outcome(tenant, validator, outcome).await),
            Reply::Stream(frames) => {
                let (checks, tenant, validator) = (self.clone(), tenant.clone(), validator.clone());
                let checked = frames.then(move |frame| match frame {
                    Frame::End(Ok(outcome)) => {
                        let (checks, tenant, validator) = (checks.clone(), tenant.clone(), validator.clone());
                        let checking = async move { checks.outcome(&tenant, &validator, outcome).await };
                        checking.map(|outcome| Frame::End(Ok(outcome))).boxed()
                    }
                    other => std::future::ready(other).boxed(),
                });
                Reply::Stream(checked.boxed())
            }
            other @ (Reply::Accepted
            | Reply::Opened { .. }
            | Reply::Batch(_)
            | Reply::Notices(_)
            | Reply::Ended) => other,
        }
    }

    async fn outcome(&self, tenant: &TenantName, validator: &Arc<Validator>, outcome: Outcome) -> Outcome {
        let Outcome::Result(result) = outcome else { return outcome };
        match self.content(tenant, validator, &result).await {
            Ok(()) => Outcome::Result(result),
            Err(problem) => {
                let said = format!("the backend's result does not fit its output schema: {problem}");
                Outcome::Result(failed(&said))
            }
        }
    }

    /// Checks the structured content of a result. One that tells of a failure may have none.
    ///
    /// spec: server/tools, Output Schema (Servers MUST provide structured results that conform to it)
    async fn content(
        &self,
        tenant: &TenantName,
        validator: &Arc<Validator>,
        result: &Json,
    ) -> Result<(), String> {
        let Some(content) = result.member("structuredContent") else {
            let failed = result.member("isError").and_then(|failed| failed.boolean()) == Some(true);
            return if failed { Ok(()) } else { Err("it has no `structuredContent`".to_owned()) };
        };
        if !validator.is_slow(&content) {
            return validator.check_content(&content);
        }
        let validator = validator.clone();
        self.slowly(tenant, move || validator.check_content(&content)).await
    }

    async fn slowly(
        &self,
        tenant: &TenantName,
        check: impl FnOnce() -> Result<(), String> + Send + 'static,
    ) -> Result<(), String> {
        let turn = self.turn(tenant).acquire_owned().await;
        let slot = self.slots.clone().acquire_owned().await;
        let checking = tokio::task::spawn_blocking(move || {
            // Until it is done, which may be after its caller has left.
            let _held = (turn, slot);
            check()
        });
        match checking.await.map_err(JoinError::try_into_panic) {
            Ok(verdict) => verdict,
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            Err(Err(_)) => Err("the gateway ended before this was checked".to_owned()),
        }
    }

    /// The one turn of a tenant's checks. It is there for as long as somebody has it or waits for it.
    fn turn(&self, tenant: &TenantName) -> Arc<Semaphore> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(tenant).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::new(Semaphore::new(1));
        turns.insert(tenant.clone(), Arc::downgrade(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use futures_util::StreamExt;
    use futures_util::stream::FuturesUnordered;
    use serde_json::json;

    use super::Checks;
    use crate::catalog::schema::Judged;
    use crate::catalog::schema::Patterns;
    use crate::model::limits::Limits;
    use crate::model::name::TenantName;
    use crate::protocol::json::Json;

    fn json(text: String) -> Json {
        Json::parse(Bytes::from(text), 64).unwrap()
    }

    #[tokio::test]
    async fn a_tenants_large_arguments_wait_for_each_other_and_not_for_others() {
        let schema = json!({"type": "object", "properties": {"a": {"items": {"type": "integer"}}}});
        let judged = Judged::new(&Json::from_value(&schema), &Limits::default()).unwrap();
        let validator = Arc::new(judged.compile(&mut Patterns::default()).unwrap());
        let large = json(format!(r#"{{"a":[{}0]}}"#, "0,".repeat(100_000)));
        let tenants =
            ["acme", "acme", "acme", "acme", "acme", "globex"].map(|name| TenantName::new(name).unwrap());
        let all = Arc::new(Checks::default());
        let checks = tenants.iter().map(async |tenant| {
            all.arguments(tenant, &validator, Some(&large)).await.unwrap();
            tenant.as_str()
        });
        let ended: Vec<_> = checks.collect::<FuturesUnordered<_>>().collect().await;
        // In the order of arrival it would be the last.
        assert!(ended[..4].contains(&"globex"), "{ended:?}");
    }
}
