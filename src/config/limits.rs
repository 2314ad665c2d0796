//! `[limits]`: every limit of `model::limits`, each with the range that makes sense.

use crate::config::reader::At;
use crate::model::limits::Limits;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000;
const HOUR: u64 = 3_600 * SECOND;

/// Writes the section's keys and its reader from one list, which the compiler checks to be all
/// fields of [`Limits`].
macro_rules! limits {
    ($($field:ident: $kind:ident $least:expr, $most:expr;)*) => {
        /// The keys of this section.
        pub const NAMES: &[&str] = &[$(stringify!($field)),*];

        /// Reads the section.
        pub(crate) fn read(at: &At<'_>) -> Option<Limits> {
            let fields = at.map(NAMES)?;
            // Every field is read before any of them may end the reading: all problems at once.
            $(let $field = fields.need(stringify!($field)).and_then(|at| at.$kind(&($least..=$most)));)*
            let limits = Limits { $($field: $field?),* };
            if limits.drain_accept >= limits.drain_total {
                return fields.need("drain_accept")?.refuse("expected less than `limits.drain_total`");
            }
            if limits.open_pause > limits.open_pause_most {
                return fields.need("open_pause")?.refuse("expected at most `limits.open_pause_most`");
            }
            if limits.task_time > limits.task_time_most {
                return fields.need("task_time")?.refuse("expected at most `limits.task_time_most`");
            }
            Some(limits)
        }
    };
}

limits! {
    head_bytes: size 4 * KIB, MIB;
    target_bytes: size 256, 64 * KIB;
    header_fields: count 16, 1_000;
    head_time: duration 100, 300 * SECOND;
    idle_time: duration SECOND, HOUR;
    body_bytes: size KIB, 1024 * MIB;
    bodies_bytes: size MIB, 1024 * 1024 * MIB;
    body_time: duration 100, HOUR;
    body_rate: size 1, 1024 * MIB;
    write_time: duration 100, HOUR;
    connections: count 1, 1_000_000;
    json_depth: count 8, 1_000;
    id_bytes: size 16, 4 * KIB;
    page_size: count 1, 100_000;
    page_bytes: size KIB, 64 * MIB;
    argument_values: count 100, 100_000_000;
    late_stream: duration 10, HOUR;
    keep_alive: duration 100, HOUR;
    stream_bytes: size KIB, 64 * MIB;
    log_bytes: size 64, MIB;
    log_messages: count 1, 1_000_000;
    list_ttl: duration SECOND, 24 * HOUR;
    session_time: duration 60 * SECOND, 168 * HOUR;
    capabilities_bytes: size 2, 8 * KIB;
    session_rounds: count 1, 255;
    answer_time: duration 100, 24 * HOUR;
    caller_questions: count 1, 10_000;
    tenant_questions: count 1, 1_000_000;
    session_calls: count 1, 100_000;
    session_levels: count 4, 10_000_000;
    ended_sessions: count 16, 100_000_000;
    orphan_time: duration 1, HOUR;
    orphan_calls: count 4, 100_000;
    caller_streams: count 1, 10_000;
    tenant_streams: count 1, 1_000_000;
    subscription_uris: count 1, 10_000;
    subscription_bytes: size 256, MIB;
    caller_subscriptions: count 1, 1_000_000;
    subscription_time: duration 1, 60 * SECOND;
    notification_pause: duration 1, 60 * SECOND;
    notification_rate: count 1, 100_000;
    watch_linger: duration 1, HOUR;
    batch_messages: count 1, 10_000;
    batch_calls: count 1, 1_000;
    batch_bytes: size KIB, 1024 * MIB;
    task_id_bytes: size 64, 4 * KIB;
    task_time: duration SECOND, 8_760 * HOUR;
    task_time_most: duration SECOND, 8_760 * HOUR;
    upstream_bytes: size KIB, 1024 * MIB;
    media_bytes: size KIB, 1024 * MIB;
    upstream_batch: count 1, 10_000;
    upstream_replies: count 1, 10_000;
    rounds: count 1, 255;
    input_entries: count 1, 1_000;
    input_bytes: size KIB, 64 * MIB;
    state_bytes: size 256, 47 * KIB;
    state_time: duration SECOND, 24 * HOUR;
    parked_time: duration 10, 24 * HOUR;
    parked_calls: count 1, 100_000;
    tenant_parked_calls: count 1, 100_000;
    caller_parked_calls: count 1, 10_000;
    retry_time: duration 1, HOUR;
    retry_bytes: size 0, 1024 * MIB;
    upstream_calls: count 1, 100_000;
    call_time: duration 100, 24 * HOUR;
    connect_time: duration 10, 300 * SECOND;
    probe_time: duration 10, 300 * SECOND;
    open_time: duration 10, 300 * SECOND;
    initialize_bytes: size KIB, 64 * MIB;
    open_pause: duration 1, HOUR;
    open_pause_most: duration 1, HOUR;
    upstream_sessions: count 1, 100_000;
    all_upstream_sessions: count 4, 10_000_000;
    upstream_session_idle: duration 10, 24 * HOUR;
    listen_time: duration 1, 60 * SECOND;
    listen_event_bytes: size KIB, 64 * MIB;
    listen_bytes: size 256, 64 * MIB;
    listen_messages: count 1, 100_000;
    upstream_watches: count 1, 10_000;
    watch_time: duration 10, 300 * SECOND;
    notice_time: duration 10, 60 * SECOND;
    upstream_pages: count 1, 100_000;
    upstream_tools: count 1, 1_000_000;
    upstream_prompts: count 1, 1_000_000;
    upstream_resources: count 1, 1_000_000;
    upstream_templates: count 1, 10_000;
    list_time: duration 100, HOUR;
    refresh_time: duration SECOND, 24 * HOUR;
    catalog_grace: duration 10, 168 * HOUR;
    first_catalog_time: duration 10, 300 * SECOND;
    caller_catalogs: count 4, 10_000_000;
    caller_catalog_bytes: size 64 * KIB, 1024 * 1024 * MIB;
    caller_catalog_loads: count 1, 10_000;
    caller_catalog_time: duration 10, 300 * SECOND;
    caller_catalog_idle: duration 10, 24 * HOUR;
    catalog_file_bytes: size KIB, 1024 * MIB;
    cache_bytes: size 0, 1024 * 1024 * MIB;
    tenant_cache_bytes: size 0, 1024 * 1024 * MIB;
    cache_time: duration 10, HOUR;
    uri_bytes: size 64, 16 * KIB;
    description_bytes: size 16, MIB;
    schema_bytes: size 256, 64 * MIB;
    subschemas: count 1, 10_000_000;
    instructions_bytes: size 16, MIB;
    token_cache: count 1, 10_000_000;
    token_bytes: size 256, MIB;
    issuer_bytes: size KIB, 64 * MIB;
    issuer_keys: count 1, 10_000;
    issuer_time: duration 100, 300 * SECOND;
    introspections: count 16, 100_000;
    introspection_time: duration 1, 30 * SECOND;
    keys_refresh: duration SECOND, 24 * HOUR;
    keys_cooldown: duration 100, 24 * HOUR;
    database_connections: count 1, 1_000;
    database_wait: duration 100, 60 * SECOND;
    statement_time: duration 100, 300 * SECOND;
    changes_time: duration 100, HOUR;
    secret_bytes: size 16, 32 * KIB;
    admin_body_bytes: size KIB, 64 * MIB;
    idempotency_time: duration 60 * SECOND, 168 * HOUR;
    drain_accept: duration 1, HOUR;
    drain_total: duration 1, 24 * HOUR;
}
