//! Every metric's name, unit and help.

use prometheus_client::registry::Unit;

use crate::telemetry::metrics::ByKind;
use crate::telemetry::metrics::Metrics;

impl Metrics {
    pub(super) fn register_road(&mut self) {
        let registry = &mut self.registry;
        registry.register("requests", "MCP requests answered", self.requests.clone());
        registry.register_with_unit(
            "request_duration",
            "Time from a request's head to the end of its answer, streams included",
            Unit::Seconds,
            self.request_seconds.clone(),
        );
        let in_flight = self.requests_in_flight.clone();
        registry.register("requests_in_flight", "Requests being answered, streams included", in_flight);
        registry.register("connections_open", "Client connections open", self.connections_open.clone());
        registry.register("streams_open", "SSE answers open", self.streams_open.clone());
        registry.register(
            "refusals",
            "Requests that we refused, by what refused them",
            self.refusals.clone(),
        );
        registry.register("panics", "Requests that died by a fault of ours", self.panics.clone());
    }

    pub(super) fn register_sessions(&mut self) {
        let registry = &mut self.registry;
        registry.register("sessions_opened", "Answers to `initialize`", self.sessions_opened.clone());
        let ended = self.sessions_ended.clone();
        registry.register("sessions_ended", "Sessions that their clients ended", ended);
        let open = self.session_streams_open.clone();
        registry.register("session_streams_open", "GET streams of sessions open", open);
        let open = self.listens_open.clone();
        registry.register("listens_open", "Answers to `subscriptions/listen` open", open);
        // Told from the start, not from the first one on.
        ["tools", "prompts", "resources", "updated", "task"]
            .into_iter()
            .for_each(|kind| drop(self.notifications_sent.get_or_create(&ByKind { kind })));
        let sent = self.notifications_sent.clone();
        registry.register("notifications_sent", "Notifications of changes sent to listeners", sent);
    }

    pub(super) fn register_rooms(&mut self) {
        let registry = &mut self.registry;
        self.auth.register(registry);
        registry.register("upstream_requests", "Requests to backends", self.upstream_requests.clone());
        registry.register_with_unit(
            "upstream_duration",
            "Time from sending a request to a backend to the end of its answer",
            Unit::Seconds,
            self.upstream_seconds.clone(),
        );
        let probes = self.upstream_probes.clone();
        registry.register("upstream_probes", "Probes of a backend's era, by what they found", probes);
        registry.register(
            "upstream_sessions",
            "What happened to sessions with backends of the handshake era",
            self.upstream_sessions.clone(),
        );
        let parked = self.parked_calls.clone();
        registry.register("parked_calls", "Calls that wait for what was asked of their clients", parked);
        let watches = self.upstream_watches_open.clone();
        registry.register("upstream_watches_open", "Subscriptions to backends' changes open", watches);
        let refreshes = self.catalog_refreshes.clone();
        registry.register("catalog_refreshes", "Refreshes of a backend's catalog", refreshes);
        let stale = self.catalogs_stale.clone();
        registry.register("catalogs_stale", "Backends whose last refresh failed", stale);
        let left_out = self.entries_left_out.clone();
        let help = "Tools, prompts and resources that were left out, each when that is found";
        registry.register("entries_left_out", help, left_out);
        registry.register("tool_aliases", "Calls by a backend's own name", self.tool_aliases.clone());
        registry.register("config_reloads", "Reloads of the tenants file", self.config_reloads.clone());
    }
}
