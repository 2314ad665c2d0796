//! Values with one thing in them changed, everything else as it was.

use crate::protocol::json::Json;
use crate::protocol::json::Kind;
use crate::protocol::json::compose::Array;
use crate::protocol::json::compose::Object;

/// `object` with another value under `key`, if it has that key and `change` has another value for it.
pub fn member(object: &Json, key: &str, change: impl FnOnce(&Json) -> Option<Json>) -> Option<Json> {
    let new = change(&object.member(key)?)?;
    let mut whole = Object::with_capacity(object.bytes().len() + new.bytes().len());
    for (member, value) in object.members() {
        whole = whole.put(&member, if member == key { &new } else { &value });
    }
    Some(whole.finish())
}

/// `array` with other elements in the place of those that `change` has others for, if there are any.
pub fn elements(array: &Json, mut change: impl FnMut(&Json) -> Option<Json>) -> Option<Json> {
    if array.kind() != Kind::Array {
        return None;
    }
    let mut changed = false;
    let mut whole = Array::with_capacity(array.bytes().len() + 256);
    for element in array.elements() {
        let new = change(&element);
        changed |= new.is_some();
        whole = whole.push(new.as_ref().unwrap_or(&element));
    }
    changed.then(|| whole.finish())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::elements;
    use super::member;
    use crate::protocol::json::Json;

    fn json(text: &'static str) -> Json {
        Json::parse(Bytes::from_static(text.as_bytes()), 64).unwrap()
    }

    #[test]
    fn one_member_changes_and_the_rest_is_as_it_was() {
        let object = json(r#"{ "a":1e400, "\u0062":{ "x" : null }, "c":[9007199254740993] }"#);
        let changed = member(&object, "b", |_| Some(json("7")));
        assert_eq!(changed.unwrap().text(), r#"{"a":1e400,"b":7,"c":[9007199254740993]}"#);
        assert_eq!(member(&object, "b", |_| None), None);
        assert_eq!(member(&object, "d", |_| Some(json("7"))), None);
        assert_eq!(member(&json("[1]"), "b", |_| Some(json("7"))), None);
    }

    #[test]
    fn some_elements_change() {
        let even = |element: &Json| element.text().ends_with('2').then(|| json("0"));
        assert_eq!(elements(&json("[1, 2 ,{ }, 12]"), even).unwrap().text(), "[1,0,{ },0]");
        assert_eq!(elements(&json("[1,3]"), even), None);
        assert_eq!(elements(&json(r#"{"a":2}"#), even), None);
    }
}
