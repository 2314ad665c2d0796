//! Output schemas of this era describe objects. One of anything else is wrapped in an object with one
//! member, and its references are rewritten so that they lead where they led.
//!
//! Admission has proven that a schema refers to nothing outside itself and has no identifier below its
//! root. A root with an identifier stays a document of its own wherever it stands: its references are
//! right as they are. Anchors are, too.
//!
//! spec: row Y-04; 2025-11-25 server/tools, Output Schema

use crate::protocol::json::Json;
use crate::protocol::json::Kind;
use crate::protocol::json::compose::Array;
use crate::protocol::json::compose::Object;

/// The one member of the object.
pub(super) const RESULT: &str = "result";

/// Where the schema stands in the one around it.
const ROOT: &str = "#/properties/result";

/// Whether lists show this output schema wrapped, and results what it describes.
pub(super) fn is_wrapped(schema: &Json) -> bool {
    schema.member("type").as_ref().and_then(Json::string_ref).is_none_or(|kind| kind != "object")
}

/// `schema` in an object.
pub(super) fn wrap(schema: &Json) -> Json {
    let dialect = schema.member("$schema");
    let members = schema.members().filter(|(key, _)| key != "$schema");
    let inner =
        members.fold(Object::with_capacity(schema.bytes().len()), |all, (key, value)| all.put(&key, &value));
    let inner = inner.finish();
    let inner = match has_identifier(schema, dialect.as_ref()) {
        true => inner,
        false => moved(&inner, Place::Schema),
    };
    Object::with_capacity(inner.bytes().len() + 128)
        .put_some("$schema", dialect.as_ref())
        .put_str("type", "object")
        .put("properties", &Object::new().put(RESULT, &inner).finish())
        .put("required", &Array::new().push_str(RESULT).finish())
        .finish()
}

/// Whether the root is a document of its own, also inside of another. A fragment alone is an anchor.
fn has_identifier(schema: &Json, dialect: Option<&Json>) -> bool {
    let is_oldest = dialect.and_then(Json::string_ref).is_some_and(|uri| uri.contains("draft-04"));
    let id = schema.member(if is_oldest { "id" } else { "$id" });
    id.as_ref().and_then(Json::string_ref).is_some_and(|id| !id.is_empty() && !id.starts_with('#'))
}

/// What a value in a schema is.
#[derive(Clone, Copy)]
enum Place {
    /// A schema, or something with schemas in it.
    Schema,
    /// Schemas by names of somebody's choice.
    Names,
}

/// `value` with its references to the root rewritten. Depth is bounded by admission.
fn moved(value: &Json, place: Place) -> Json {
    match (value.kind(), place) {
        (Kind::Object, Place::Names) => {
            let members = value.members();
            members
                .fold(Object::new(), |all, (name, schema)| all.put(&name, &moved(&schema, Place::Schema)))
                .finish()
        }
        (Kind::Object, Place::Schema) => moved_schema(value),
        (Kind::Array, _) => value
            .elements()
            .fold(Array::new(), |all, element| all.push(&moved(&element, Place::Schema)))
            .finish(),
        _ => value.clone(),
    }
}

fn moved_schema(schema: &Json) -> Json {
    let mut all = Object::with_capacity(schema.bytes().len() + 32);
    // A reference of 2019-09 to the root, and to nothing else: there is no document inside this one.
    let to_root = schema.member("$recursiveRef").map(|_| Object::new().put_str("$ref", ROOT).finish());
    let mut pending = to_root.as_ref();
    for (keyword, value) in schema.members() {
        all = match (&*keyword, value.string_ref()) {
            ("$ref" | "$dynamicRef", Some(reference)) => all.put_str(&keyword, &moved_reference(&reference)),
            ("$recursiveRef" | "$recursiveAnchor", _) => all,
            ("const" | "enum" | "default" | "examples" | "example", _) => all.put(&keyword, &value),
            ("allOf", _) if value.kind() == Kind::Array => {
                let parts = value
                    .elements()
                    .fold(Array::new(), |parts, part| parts.push(&moved(&part, Place::Schema)));
                let parts = pending.take().into_iter().fold(parts, Array::push);
                all.put("allOf", &parts.finish())
            }
            (
                "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas"
                | "dependencies",
                _,
            ) => all.put(&keyword, &moved(&value, Place::Names)),
            _ => all.put(&keyword, &moved(&value, Place::Schema)),
        };
    }
    match pending {
        Some(reference) => all.put("allOf", &Array::new().push(reference).finish()).finish(),
        None => all.finish(),
    }
}

/// A pointer from the root goes on below it; an anchor is found as before.
fn moved_reference(reference: &str) -> String {
    match reference.strip_prefix('#') {
        Some(pointer) if is_pointer(pointer) => format!("{ROOT}{pointer}"),
        _ => reference.to_owned(),
    }
}

fn is_pointer(fragment: &str) -> bool {
    let slash = ["/", "%2F", "%2f"];
    fragment.is_empty() || slash.iter().any(|slash| fragment.starts_with(slash))
}

#[cfg(test)]
mod tests;
