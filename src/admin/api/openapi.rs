//! The description of the API, made from the table that routes.

use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::admin::api::operations::BASE;
use crate::admin::api::operations::Does;
use crate::admin::api::operations::OPERATIONS;
use crate::admin::api::operations::Operation;
use crate::admin::api::request::MOST;
use crate::admin::api::request::PAGE;
use crate::protocol::json::Json;

/// The description.
pub fn document() -> Json {
    Json::from_value(&description())
}

/// The same as a value.
pub fn description() -> Value {
    let mut paths = Map::new();
    for operation in OPERATIONS {
        let path = paths.entry(format!("{BASE}{}", operation.path)).or_insert_with(|| json!({}));
        path[operation.method.as_str().to_ascii_lowercase()] = one(operation);
    }
    json!({
        "openapi": "3.1.1",
        "info": {
            "title": "Fondaco admin API",
            "version": "1",
            "description": "Tenants that live in the database. Documents have the grammar of the tenants file.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://127.0.0.1:8081"}],
        "security": [{"operatorKey": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"operatorKey": {"type": "http", "scheme": "bearer", "description": "An operator's key, `fdo_…`."}},
            "schemas": schemas(),
            "responses": {"Problem": {
                "description": "The request was refused.",
                "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
            }},
        },
    })
}

fn one(operation: &Operation) -> Value {
    let mut described = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "parameters": parameters(operation),
        "responses": responses(operation),
    });
    if operation.has_body() {
        let schema = json!({"$ref": format!("#/components/schemas/{}", takes(operation))});
        described["requestBody"] =
            json!({"required": true, "content": {"application/json": {"schema": schema}}});
    }
    described
}

fn parameters(operation: &Operation) -> Vec<Value> {
    let names = operation.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut parameters: Vec<Value> = names
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .collect();
    if operation.is_list() {
        let limit = json!({"type": "integer", "minimum": 1, "maximum": MOST, "default": PAGE});
        parameters.push(json!({"name": "limit", "in": "query", "schema": limit}));
        parameters.push(json!({"name": "cursor", "in": "query", "schema": {"type": "string"}}));
    }
    if operation.is_conditional() {
        let about = "The object's `ETag`, or `*`.";
        let schema = json!({"type": "string"});
        let parameter = json!({"name": "If-Match", "in": "header", "required": true, "description": about, "schema": schema});
        parameters.push(parameter);
    }
    if operation.method == http::Method::POST && operation.does != Does::CreateOperator {
        let schema = json!({"type": "string", "minLength": 1, "maxLength": 255});
        parameters.push(json!({"name": "Idempotency-Key", "in": "header", "schema": schema}));
    }
    parameters
}

fn responses(operation: &Operation) -> Value {
    let problem = json!({"$ref": "#/components/responses/Problem"});
    let (status, about) = match operation.method.as_str() {
        "POST" => ("201", "It was made; `Location` says where it is."),
        "DELETE" => ("204", "It is gone."),
        _ => ("200", operation.summary),
    };
    let mut good = json!({"description": about});
    if let Some(schema) = gives(operation) {
        good["content"] = json!({"application/json": {"schema": schema}});
    }
    json!({status: good, "default": problem})
}

/// The schema of a body.
fn takes(operation: &Operation) -> &'static str {
    let makes = operation.method == http::Method::POST;
    match (kind(operation), makes) {
        ("secrets", true) => "NewSecret",
        ("secrets", false) => "SecretValue",
        ("operators", _) => "NewOperator",
        ("tenants" | "backends", true) => "NewDocument",
        _ => "Document",
    }
}

/// The last part of its path that is no name.
fn kind(operation: &Operation) -> &'static str {
    operation.path.rsplit('/').find(|part| !part.starts_with('{')).unwrap_or_default()
}

/// The schema of a good answer, where it has a body.
fn gives(operation: &Operation) -> Option<Value> {
    let item = match kind(operation) {
        "secrets" => "Secret",
        "operators" => "Operator",
        "audit" => "AuditEntry",
        "openapi.json" => return Some(json!({"type": "object"})),
        _ => "Stored",
    };
    let named = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    match operation.method.as_str() {
        "DELETE" => None,
        "POST" if operation.does == Does::CreateOperator => Some(named("OperatorWithKey")),
        "POST" | "PUT" => Some(named("State")),
        _ if operation.is_list() => Some(json!({
            "type": "object",
            "required": ["items"],
            "properties": {
                "items": {"type": "array", "items": named(item)},
                "next": {"type": "string", "description": "The cursor of the next page, where there is one."},
            },
        })),
        _ => Some(named(item)),
    }
}

fn object(required: &[&str], properties: &Value) -> Value {
    json!({"type": "object", "required": required, "properties": properties})
}

fn closed(required: &[&str], properties: &Value) -> Value {
    let mut schema = object(required, properties);
    schema["additionalProperties"] = json!(false);
    schema
}

fn schemas() -> Value {
    let text = json!({"type": "string"});
    let time = json!({"type": "integer", "description": "Seconds since the Unix epoch."});
    let state = json!({"type": "integer", "description": "The state, which `ETag` has in quotes."});
    let any =
        json!({"type": "object", "description": "As the tenants file has it: docs/reference/tenants.md."});
    let role = json!({"enum": ["owner", "operator", "auditor"]});
    let whose = json!({"type": ["string", "null"]});
    let operator = json!({"id": text, "name": text, "role": role, "tenant": whose, "created": time});
    let mut with_key = operator.clone();
    with_key["key"] = json!({"type": "string", "description": "The key. It is shown this once."});
    let stored = json!({"name": text, "revision": state, "created": time, "changed": time, "document": any});
    let secret = json!({"name": text, "revision": state, "created": time, "changed": time});
    let was = json!({"type": ["object", "null"]});
    let entry = json!({
        "number": {"type": "integer"}, "at": time, "actor": text, "action": text, "object": text,
        "was": was, "became": was, "previous": text, "hash": text,
    });
    let error = object(&["path", "message"], &json!({"path": text, "message": text, "hint": text}));
    let problem = json!({
        "type": text, "title": text, "status": {"type": "integer"}, "detail": text,
        "errors": {"type": "array", "items": error},
    });
    let members = ["id", "name", "role", "tenant", "created"];
    json!({
        "Stored": object(&["name", "revision", "created", "changed", "document"], &stored),
        "State": object(&["name", "revision"], &json!({"name": text, "revision": state})),
        "Secret": object(&["name", "revision", "created", "changed"], &secret),
        "Operator": object(&members, &operator),
        "OperatorWithKey": object(&[&members[..], &["key"]].concat(), &with_key),
        "AuditEntry": object(&["number", "at", "actor", "action", "object"], &entry),
        "NewDocument": closed(&["name", "document"], &json!({"name": text, "document": any})),
        "Document": closed(&["document"], &json!({"document": any})),
        "NewSecret": closed(&["name", "value"], &json!({"name": text, "value": text})),
        "SecretValue": closed(&["value"], &json!({"value": text})),
        "NewOperator": closed(&["name", "role"], &json!({"name": text, "role": role, "tenant": whose})),
        "Problem": object(&["type", "title", "status", "detail"], &problem),
    })
}
