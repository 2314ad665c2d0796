//! (telemetry: under construction)
