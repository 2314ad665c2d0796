//! What a backend is told that its client can do: what the client declared on this request, as far as it
//! can do that through this gateway, and as far as the tenant lets this backend ask for it.

use crate::model::tenant::Ask;
use crate::model::tenant::Backend;
use crate::protocol::able::Able;
use crate::protocol::able::modes;
use crate::protocol::extensions;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Object;
use crate::protocol::message::misspells;
use crate::protocol::tasks;

/// The capabilities that are judged. In another case they are none to us, and some to peers that ignore it.
const NAMES: [&str; 4] = ["elicitation", "sampling", "roots", tasks::EXTENSIONS];

/// The modes of `elicitation`, likewise.
const MODES: [&str; 2] = ["form", "url"];

/// What of these client capabilities this backend is told, which may answer with `tasks` or not.
///
/// spec: row GW-04
pub(super) fn carried(declared: &Json, backend: &Backend, tasks: bool) -> Json {
    let refused = &backend.refused;
    let may = |ask: Ask| !refused.contains(&ask);
    let told = |key: &str, value: Json| match key {
        "elicitation" => elicitation(value, refused),
        "sampling" => Some(value).filter(|value| value.is_object() && may(Ask::Sampling)),
        // Nobody can tell a backend that a list of roots has changed.
        "roots" => (value.is_object() && may(Ask::Roots)).then(|| Object::new().finish()),
        tasks::EXTENSIONS => extensions::carried(&value, &backend.extensions, tasks),
        other => Some(value).filter(|_| !misspells(other, &NAMES)),
    };
    let all = declared.members().fold(Object::with_capacity(declared.bytes().len()), |all, (key, value)| {
        all.put_some(&key, told(&key, value).as_ref())
    });
    all.finish()
}

/// `elicitation` without the modes that are refused, if any is left.
fn elicitation(declared: Json, refused: &[Ask]) -> Option<Json> {
    if !declared.is_object() {
        return None;
    }
    let drops = |ask: Ask| refused.contains(&ask);
    let (form, url) = modes(&declared);
    if (!form || drops(Ask::Form)) && (!url || drops(Ask::Url)) {
        return None;
    }
    let left = declared.members().filter(|(mode, _)| match &**mode {
        "form" => !drops(Ask::Form),
        "url" => !drops(Ask::Url),
        other => !misspells(other, &MODES),
    });
    Some(left.fold(Object::new(), |all, (mode, value)| all.put(&mode, &value)).finish())
}

/// What may be asked of who can do this.
fn asks(able: Able) -> impl Iterator<Item = Ask> {
    let can = move |ask: &Ask| match ask {
        Ask::Form => able.form,
        Ask::Url => able.url,
        Ask::Sampling => able.sampling,
        Ask::Roots => able.roots,
    };
    Ask::ALL.into_iter().filter(can)
}

/// Whether a client that declared `declared` has what a backend requires, as far as it can be asked for it.
pub(super) fn covers(declared: &Json, required: &Json) -> bool {
    let required = Able::of(required);
    required == Able::default() || Able::of(declared).covers(required)
}

/// What of the capabilities that a backend requires its tenant refuses it.
pub(super) fn refusal(required: &Json, refused: &[Ask]) -> Option<Ask> {
    asks(Able::of(required)).find(|ask| refused.contains(ask))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::carried;
    use super::covers;
    use super::refusal;
    use crate::model::tenant::Ask;
    use crate::model::tenant::Backend;
    use crate::protocol::json::Json;

    fn json(text: &str) -> Json {
        Json::parse(Bytes::copy_from_slice(text.as_bytes()), 64).expect(text)
    }

    // spec: row GW-04
    #[test]
    fn a_backend_is_told_what_its_client_declared_and_its_tenant_lets_it_ask_for() {
        let (form, url) = (Ask::Form, Ask::Url);
        for (declared, refused, told) in [
            ("{}", &[][..], "{}"),
            (r#"{"elicitation":{}}"#, &[], r#"{"elicitation":{}}"#),
            (r#"{"elicitation":{}}"#, &[url], r#"{"elicitation":{}}"#),
            (r#"{"elicitation":{}}"#, &[form], "{}"),
            (
                r#"{"elicitation":{"form":{"x":1e400},"url":{}}}"#,
                &[url],
                r#"{"elicitation":{"form":{"x":1e400}}}"#,
            ),
            (r#"{"elicitation":{"form":{},"url":{}}}"#, &[form], r#"{"elicitation":{"url":{}}}"#),
            (r#"{"elicitation":{"form":{},"url":{}}}"#, &[form, url], "{}"),
            (r#"{"elicitation":{"url":{}}}"#, &[url], "{}"),
            (r#"{"elicitation":{"url":{}}}"#, &[form], r#"{"elicitation":{"url":{}}}"#),
            (r#"{"sampling":{"tools":{},"context":{}}}"#, &[], r#"{"sampling":{"tools":{},"context":{}}}"#),
            (r#"{"sampling":{"tools":{}}}"#, &[Ask::Sampling], "{}"),
            (r#"{"roots":{"listChanged":true}}"#, &[], r#"{"roots":{}}"#),
            (r#"{"roots":{}}"#, &[Ask::Roots], "{}"),
            (r#"{"elicitation":true,"sampling":1,"roots":[]}"#, &[], "{}"),
            (
                r#"{"Elicitation":{},"SAMPLING":{},"\u017fampling":{},"rootS":{},"Extensions":{"a/b":{}}}"#,
                &[],
                "{}",
            ),
            (
                r#"{"elicitation":{"Form":{},"url":{},"URL":{},"x":{}}}"#,
                &[form],
                r#"{"elicitation":{"url":{},"x":{}}}"#,
            ),
            (r#"{"extensions":{"a/b":{}},"new":{"x":1.50}}"#, &Ask::ALL, r#"{"new":{"x":1.50}}"#),
        ] {
            let backend = Backend { refused: refused.to_vec(), ..Backend::demo("crm") };
            assert_eq!(carried(&json(declared), &backend, false).text(), told, "{declared} {refused:?}");
        }
    }

    #[test]
    fn what_is_required_is_compared_with_what_is_there() {
        for (declared, required, has) in [
            (r#"{"elicitation":{}}"#, r#"{"elicitation":{}}"#, true),
            (r#"{"elicitation":{}}"#, r#"{"elicitation":{"form":{}}}"#, true),
            (r#"{"elicitation":{}}"#, r#"{"elicitation":{"url":{}}}"#, false),
            (r#"{"elicitation":{"url":{}}}"#, r#"{"elicitation":{}}"#, false),
            (r#"{"sampling":{}}"#, r#"{"sampling":{"tools":{}}}"#, false),
            (r#"{"sampling":{"tools":{}}}"#, r#"{"sampling":{}}"#, true),
            ("{}", r#"{"roots":{}}"#, false),
            ("{}", r#"{"other":{}}"#, true),
        ] {
            assert_eq!(covers(&json(declared), &json(required)), has, "{declared} {required}");
        }
        let required = json(r#"{"elicitation":{"url":{}},"sampling":{}}"#);
        assert_eq!(refusal(&required, &[Ask::Form]), None);
        assert_eq!(refusal(&required, &[Ask::Sampling]), Some(Ask::Sampling));
    }
}
