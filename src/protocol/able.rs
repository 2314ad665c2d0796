//! What a client can be asked, by the capabilities that it declares.
//!
//! spec: client/elicitation, client/sampling, client/roots, Capabilities

use crate::protocol::json::Json;
use crate::protocol::json::compose::Object;

/// What asks a user something.
pub const ELICITATION: &str = "elicitation/create";

/// What asks a client's model.
pub const SAMPLING: &str = "sampling/createMessage";

/// What asks for a client's directories.
pub const ROOTS: &str = "roots/list";

/// What a client can be asked, by what it declared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Able {
    /// To fill in a form.
    pub form: bool,
    /// To open a URL.
    pub url: bool,
    /// What its model says.
    pub sampling: bool,
    /// What its model says, with tools.
    pub tools: bool,
    /// What its model says, with the context that the client has.
    pub context: bool,
    /// Its directories.
    pub roots: bool,
}

impl Able {
    /// A client that declared this.
    pub fn of(declared: &Json) -> Self {
        let mut able = Self::default();
        for (name, value) in declared.members().filter(|(_, value)| value.is_object()) {
            match &*name {
                "elicitation" => (able.form, able.url) = modes(&value),
                "sampling" => {
                    let has = |part: &str| value.member(part).is_some_and(|value| value.is_object());
                    (able.sampling, able.tools, able.context) = (true, has("tools"), has("context"));
                }
                "roots" => able.roots = true,
                _ => {}
            }
        }
        able
    }

    /// Whether it can do all that `other` can.
    pub fn covers(self, other: Self) -> bool {
        let pairs = [
            (self.form, other.form),
            (self.url, other.url),
            (self.sampling, other.sampling),
            (self.tools, other.tools),
            (self.context, other.context),
            (self.roots, other.roots),
        ];
        pairs.iter().all(|(own, others)| *own || !others)
    }

    /// Adds what it can to capabilities, in one text for all who say the same of themselves.
    pub fn declare(self, capabilities: Object) -> Object {
        let nothing = Object::new().finish();
        let part = |object: Object, key: &str, has: bool| object.put_some(key, has.then_some(&nothing));
        // Revisions without modes know the empty object alone.
        let elicitation = (self.form || self.url)
            .then(|| part(part(Object::new(), "form", self.form && self.url), "url", self.url).finish());
        let sampling = self
            .sampling
            .then(|| part(part(Object::new(), "tools", self.tools), "context", self.context).finish());
        let capabilities = capabilities.put_some("elicitation", elicitation.as_ref());
        let capabilities = capabilities.put_some("sampling", sampling.as_ref());
        part(capabilities, "roots", self.roots)
    }
}

/// Whether forms, and whether URLs are meant. Where neither is named it is forms.
///
/// spec: client/elicitation, Capabilities
pub fn modes(elicitation: &Json) -> (bool, bool) {
    let names = |mode: &str| elicitation.member(mode).is_some_and(|value| value.is_object());
    let url = names("url");
    (names("form") || !url, url)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::Able;
    use crate::protocol::json::Json;
    use crate::protocol::json::compose::Object;

    #[test]
    fn what_a_client_can_is_declared_in_one_text() {
        for (declared, told) in [
            (r#"{"elicitation":{}}"#, r#"{"elicitation":{}}"#),
            (
                r#"{"roots":{"listChanged":true},"elicitation":{"form":{"x":1}}}"#,
                r#"{"elicitation":{},"roots":{}}"#,
            ),
            (r#"{"elicitation":{"url":{}}}"#, r#"{"elicitation":{"url":{}}}"#),
            (r#"{"elicitation":{"url":{},"form":{}}}"#, r#"{"elicitation":{"form":{},"url":{}}}"#),
            (r#"{"sampling":{"context":{},"tools":{},"x":{}}}"#, r#"{"sampling":{"tools":{},"context":{}}}"#),
            (r#"{"sampling":{},"elicitation":1,"roots":[]}"#, r#"{"sampling":{}}"#),
            (r#"{"tasks":{},"x":{}}"#, "{}"),
        ] {
            let able = Able::of(&Json::parse(Bytes::copy_from_slice(declared.as_bytes()), 64).unwrap());
            let whole = able.declare(Object::new()).finish();
            assert_eq!(whole.text(), told, "{declared}");
            assert_eq!(Able::of(&whole), able, "{declared}");
        }
    }
}
