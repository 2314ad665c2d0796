//! Every limit of the gateway, by name. `config` fills them; nothing else invents one.

use std::time::Duration;

/// The limits of one process. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest request head.
    pub head_bytes: usize,
    /// Longest request target.
    pub target_bytes: usize,
    /// Most header fields in a request.
    pub header_fields: usize,
    /// Time for a head to arrive, from its first byte or from the connection's start.
    pub head_time: Duration,
    /// Longest silence of a kept-alive connection.
    pub idle_time: Duration,
    /// Longest request body.
    pub body_bytes: usize,
    /// What all bodies that are being held may hold together; a tenant's, a quarter of it.
    pub bodies_bytes: usize,
    /// Time for a body to arrive.
    pub body_time: Duration,
    /// Slowest body that is still read, in bytes a second, counted after a grace of 5 s.
    pub body_rate: usize,
    /// Longest time that one write to a client may be blocked.
    pub write_time: Duration,
    /// Most connections on the public listener.
    pub connections: usize,
    /// Deepest JSON nesting.
    pub json_depth: usize,
    /// Longest JSON-RPC id, as text.
    pub id_bytes: usize,
    /// Entries of one page of a list.
    pub page_size: usize,
    /// Largest page of a list, unless its one entry is larger.
    pub page_bytes: usize,
    /// Most values in the arguments of a call.
    pub argument_values: usize,
    /// Time without an answer after which a client that takes SSE gets SSE.
    pub late_stream: Duration,
    /// Silence after which a stream gets a comment.
    pub keep_alive: Duration,
    /// Progress and log messages that may wait for a slow reader of one stream; older gives way to newer.
    pub stream_bytes: usize,
    /// Longest log message that is relayed; a longer one is dropped.
    pub log_bytes: usize,
    /// Most log messages of one request that are relayed.
    pub log_messages: usize,
    /// `ttlMs` of lists.
    pub list_ttl: Duration,
    /// How long a session of the handshake era lasts.
    pub session_time: Duration,
    /// What a session id carries of its client's capabilities; of a client that declares more, nothing.
    pub capabilities_bytes: usize,
    /// How often the client of a session is asked in one call.
    pub session_rounds: usize,
    /// How long it has for the answers of one round.
    pub answer_time: Duration,
    /// Most calls of one caller whose client is being asked; of all its sessions together.
    pub caller_questions: usize,
    /// Most of one tenant.
    pub tenant_questions: usize,
    /// Most calls in flight in one session.
    pub session_calls: usize,
    /// Sessions whose level of log messages is remembered; a tenant's, a quarter of them.
    pub session_levels: usize,
    /// Sessions that were ended before their time and are remembered; a tenant's, a quarter of them, and
    /// a principal's, a quarter of its tenant's.
    pub ended_sessions: usize,
    /// How long a call in a session goes on after its client has left.
    pub orphan_time: Duration,
    /// Most calls that go on without their clients; a tenant's, a quarter of them.
    pub orphan_calls: usize,
    /// Most streams that one caller listens on, those of its sessions included; and, beside them, most of
    /// its sessions that subscribe to resources.
    pub caller_streams: usize,
    /// Most of either of one tenant.
    pub tenant_streams: usize,
    /// Most resources and tasks that one listener, or one session, subscribes to.
    pub subscription_uris: usize,
    /// Most bytes of their URIs and ids together.
    pub subscription_bytes: usize,
    /// Most resources and tasks that one caller subscribes to, with all its listeners and sessions.
    pub caller_subscriptions: usize,
    /// How long an acknowledgement waits for the backends of its resources.
    pub subscription_time: Duration,
    /// Least time between two notifications of one kind to one listener.
    pub notification_pause: Duration,
    /// Most notifications of resources and tasks to one listener in a second.
    pub notification_rate: usize,
    /// How long a subscription with a backend is kept that nobody wants any more.
    pub watch_linger: Duration,
    /// Most messages of one batch.
    pub batch_messages: usize,
    /// Most messages of one batch that are answered at a time.
    pub batch_calls: usize,
    /// Most bytes of the answers to one batch, errors included.
    pub batch_bytes: usize,
    /// Longest id that a backend may give to a task.
    pub task_id_bytes: usize,
    /// How long the id of a task opens, at least; longer where the task's own `ttlMs` says so.
    pub task_time: Duration,
    /// How long it opens at most, and where the task has no `ttlMs`.
    pub task_time_most: Duration,
    /// Longest answer, or one SSE event, of a backend.
    pub upstream_bytes: usize,
    /// Longest base64 of one image, sound or file in a result; within `upstream_bytes`.
    pub media_bytes: usize,
    /// Most messages that a backend may send together, in one array.
    pub upstream_batch: usize,
    /// Most answers to a backend's own requests that are on their way in one session.
    pub upstream_replies: usize,
    /// How often one call may be answered with a backend's wish for more input.
    pub rounds: usize,
    /// Most things that a backend may ask at once, and answers that a client may give.
    pub input_entries: usize,
    /// What those may be together, the questions and the answers each.
    pub input_bytes: usize,
    /// Longest state that a backend may want back with the answers.
    pub state_bytes: usize,
    /// How long such a state is good for.
    pub state_time: Duration,
    /// How long a call of a backend of the handshake era waits for what it asked its client.
    pub parked_time: Duration,
    /// Most such calls that wait in this process.
    pub parked_calls: usize,
    /// Most of one tenant.
    pub tenant_parked_calls: usize,
    /// Most of one caller.
    pub caller_parked_calls: usize,
    /// How long is kept what came of such answers, for the same answers sent once more.
    pub retry_time: Duration,
    /// What that may hold, of one backend.
    pub retry_bytes: usize,
    /// Most calls in flight to one backend.
    pub upstream_calls: usize,
    /// Longest time that any call may take, whatever its backend's clocks say; all of a batch together.
    pub call_time: Duration,
    /// Time to connect to a backend.
    pub connect_time: Duration,
    /// How long a backend may be silent when it is asked which era it speaks.
    pub probe_time: Duration,
    /// Time to open a session with a backend of the handshake era.
    pub open_time: Duration,
    /// Largest answer to `initialize`.
    pub initialize_bytes: usize,
    /// After a backend could not be opened, no other try is made for so long; doubled each time.
    pub open_pause: Duration,
    /// The longest such pause.
    pub open_pause_most: Duration,
    /// Most sessions with one backend of the handshake era.
    pub upstream_sessions: usize,
    /// Most sessions of callers with all backends together; a tenant's, a quarter of them.
    pub all_upstream_sessions: usize,
    /// How long a session is kept that nobody uses.
    pub upstream_session_idle: Duration,
    /// How long a call that wants progress waits until its session's GET stream is open.
    pub listen_time: Duration,
    /// Longest event that is taken from a session's GET stream, or from a subscription.
    pub listen_event_bytes: usize,
    /// What a session's GET streams, or a subscription, may say in a second; saved up for half a minute.
    pub listen_bytes: usize,
    /// How many messages that may be, likewise.
    pub listen_messages: usize,
    /// Most subscriptions to what changes at one backend.
    pub upstream_watches: usize,
    /// Time until a backend has acknowledged one.
    pub watch_time: Duration,
    /// Time for what a backend is only told: that a call is cancelled, that a session has ended.
    pub notice_time: Duration,
    /// Most pages of one list of a backend.
    pub upstream_pages: usize,
    /// Most tools of one backend.
    pub upstream_tools: usize,
    /// Most prompts of one backend.
    pub upstream_prompts: usize,
    /// Most resources of one backend.
    pub upstream_resources: usize,
    /// Most resource templates of one backend.
    pub upstream_templates: usize,
    /// Time for all lists of one backend.
    pub list_time: Duration,
    /// Between two refreshes of a backend's catalog, where its ttl says nothing; jittered.
    pub refresh_time: Duration,
    /// How long the lists of a backend that does not give them any more stay in the catalog.
    pub catalog_grace: Duration,
    /// How long a first request waits for a tenant's first catalog.
    pub first_catalog_time: Duration,
    /// Most catalogs of single callers, of backends that list for each caller; a tenant's, a quarter of them.
    pub caller_catalogs: usize,
    /// What they may weigh together, by an estimate; a tenant's, a quarter of it, and one of them, of that.
    pub caller_catalog_bytes: usize,
    /// How many callers' lists one backend of a tenant is asked for at a time.
    pub caller_catalog_loads: usize,
    /// How long a request waits for its caller's lists, once.
    pub caller_catalog_time: Duration,
    /// How long the catalog of a caller is kept that does not ask any more.
    pub caller_catalog_idle: Duration,
    /// Largest file with the last good catalog of a tenant.
    pub catalog_file_bytes: usize,
    /// What all kept results of backends may weigh together.
    pub cache_bytes: usize,
    /// What those of one tenant may.
    pub tenant_cache_bytes: usize,
    /// Longest time that a result is kept, whatever its backend says.
    pub cache_time: Duration,
    /// Longest URI of a resource, or URI template, as its backend has it.
    pub uri_bytes: usize,
    /// Longest text for people in an entry of a list.
    pub description_bytes: usize,
    /// Largest input schema of a tool.
    pub schema_bytes: usize,
    /// Most subschemas of a tool, references expanded.
    pub subschemas: usize,
    /// Instructions of a tenant and its backends together.
    pub instructions_bytes: usize,
    /// Verified tokens kept.
    pub token_cache: usize,
    /// Longest bearer token.
    pub token_bytes: usize,
    /// Largest document fetched from an issuer.
    pub issuer_bytes: usize,
    /// Most keys taken from one issuer.
    pub issuer_keys: usize,
    /// Time for one fetch from an issuer.
    pub issuer_time: Duration,
    /// Most questions about tokens at a time; an issuer's, a sixteenth of them.
    pub introspections: usize,
    /// How long an issuer's word counts that a token is good.
    pub introspection_time: Duration,
    /// Between two scheduled refreshes of an issuer's keys.
    pub keys_refresh: Duration,
    /// Least time between two fetches caused by unknown key ids.
    pub keys_cooldown: Duration,
    /// Most connections to the database, beside the one that listens to changes.
    pub database_connections: usize,
    /// Time until there is a connection to the database.
    pub database_wait: Duration,
    /// Time for one statement.
    pub statement_time: Duration,
    /// Longest time until a change in the database is looked for, where nothing tells of it; jittered.
    pub changes_time: Duration,
    /// Longest value of a secret that is kept in the database.
    pub secret_bytes: usize,
    /// Longest body of a request to the admin API.
    pub admin_body_bytes: usize,
    /// How long the answer to a write is kept for its idempotency key.
    pub idempotency_time: Duration,
    /// How long a draining process keeps accepting.
    pub drain_accept: Duration,
    /// When a draining process cuts what still goes on; it exits `notice_time` later at the latest.
    pub drain_total: Duration,
}

impl Default for Limits {
    #[expect(clippy::too_many_lines, reason = "it is a list")]
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            head_bytes: 64 << 10,
            target_bytes: 8 << 10,
            header_fields: 100,
            head_time: seconds(10),
            idle_time: seconds(75),
            body_bytes: 4 << 20,
            bodies_bytes: 256 << 20,
            body_time: seconds(30),
            body_rate: 1024,
            write_time: seconds(30),
            connections: 16_384,
            json_depth: 64,
            id_bytes: 256,
            page_size: 500,
            page_bytes: 1 << 20,
            argument_values: 200_000,
            late_stream: seconds(20),
            keep_alive: seconds(15),
            stream_bytes: 256 << 10,
            log_bytes: 16 << 10,
            log_messages: 1_000,
            list_ttl: seconds(60),
            session_time: seconds(24 * 60 * 60),
            capabilities_bytes: 1 << 10,
            session_rounds: 8,
            answer_time: seconds(600),
            caller_questions: 64,
            tenant_questions: 1_000,
            session_calls: 256,
            session_levels: 100_000,
            ended_sessions: 1_000_000,
            orphan_time: seconds(60),
            orphan_calls: 1_000,
            caller_streams: 64,
            tenant_streams: 2_000,
            subscription_uris: 256,
            subscription_bytes: 64 << 10,
            caller_subscriptions: 512,
            subscription_time: seconds(1),
            notification_pause: Duration::from_millis(100),
            notification_rate: 100,
            watch_linger: seconds(10),
            batch_messages: 100,
            batch_calls: 8,
            batch_bytes: 16 << 20,
            task_id_bytes: 1 << 10,
            task_time: seconds(24 * 60 * 60),
            task_time_most: seconds(30 * 24 * 60 * 60),
            upstream_bytes: 4 << 20,
            media_bytes: 3 << 20,
            upstream_batch: 100,
            upstream_replies: 64,
            rounds: 10,
            input_entries: 32,
            input_bytes: 1 << 20,
            state_bytes: 32 << 10,
            state_time: seconds(15 * 60),
            parked_time: seconds(600),
            parked_calls: 1_000,
            tenant_parked_calls: 250,
            caller_parked_calls: 16,
            retry_time: seconds(60),
            retry_bytes: 4 << 20,
            upstream_calls: 512,
            call_time: seconds(600),
            connect_time: seconds(3),
            probe_time: seconds(3),
            open_time: seconds(10),
            initialize_bytes: 256 << 10,
            open_pause: Duration::from_millis(250),
            open_pause_most: seconds(30),
            upstream_sessions: 1_000,
            all_upstream_sessions: 16_000,
            upstream_session_idle: seconds(600),
            listen_time: seconds(1),
            listen_event_bytes: 64 << 10,
            listen_bytes: 32 << 10,
            listen_messages: 100,
            upstream_watches: 16,
            watch_time: seconds(10),
            notice_time: seconds(2),
            upstream_pages: 100,
            upstream_tools: 5_000,
            upstream_prompts: 1_000,
            upstream_resources: 10_000,
            upstream_templates: 200,
            list_time: seconds(20),
            refresh_time: seconds(300),
            // Longer than a deployment or a short outage; clients that drop tools in between ask their
            // users for approval again.
            catalog_grace: seconds(600),
            first_catalog_time: seconds(5),
            caller_catalogs: 10_000,
            caller_catalog_bytes: 512 << 20,
            caller_catalog_loads: 16,
            caller_catalog_time: seconds(5),
            caller_catalog_idle: seconds(600),
            catalog_file_bytes: 64 << 20,
            cache_bytes: 128 << 20,
            tenant_cache_bytes: 16 << 20,
            cache_time: seconds(300),
            uri_bytes: 2 << 10,
            description_bytes: 8 << 10,
            schema_bytes: 256 << 10,
            subschemas: 10_000,
            instructions_bytes: 16 << 10,
            token_cache: 100_000,
            token_bytes: 16 << 10,
            issuer_bytes: 256 << 10,
            issuer_keys: 100,
            issuer_time: seconds(5),
            introspections: 1024,
            introspection_time: seconds(30),
            keys_refresh: seconds(600),
            keys_cooldown: seconds(30),
            database_connections: 8,
            database_wait: seconds(3),
            statement_time: seconds(5),
            changes_time: seconds(2),
            secret_bytes: 16 << 10,
            admin_body_bytes: 1 << 20,
            idempotency_time: seconds(24 * 60 * 60),
            drain_accept: seconds(5),
            drain_total: seconds(25),
        }
    }
}
