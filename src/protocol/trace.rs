//! The trace context of a request, strictly: what is not well-formed is dropped, and nobody sees it again.
//!
//! spec: basic/index, _meta (SEP-414); W3C Trace Context, W3C Baggage

/// Longest trace parent. Those of later versions may be longer than ours; it becomes a header.
const TRACEPARENT_BYTES: usize = 256;

/// Longest trace state: twice what everybody has to pass on.
const TRACESTATE_BYTES: usize = 1024;

/// Most members of a trace state.
const TRACESTATE_MEMBERS: usize = 32;

/// Longest baggage, and most members: what everybody has to pass on, and no more.
const BAGGAGE_BYTES: usize = 8 << 10;
const BAGGAGE_MEMBERS: usize = 64;

/// Whether `text` is a trace parent whose trace may be continued.
///
/// spec: W3C Trace Context, 3.2
pub fn is_traceparent(text: &str) -> bool {
    if text.len() > TRACEPARENT_BYTES {
        return false;
    }
    let mut fields = text.split('-');
    let mut hex = |length: usize| {
        let field = fields.next()?;
        let digits = field.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
        (digits && field.len() == length).then_some(field)
    };
    let (Some(version), Some(trace), Some(parent), Some(_flags)) = (hex(2), hex(32), hex(16), hex(2)) else {
        return false;
    };
    let nonzero = |id: &str| id.bytes().any(|digit| digit != b'0');
    // What a later version appends becomes a header, too.
    let visible = text.bytes().all(|byte| byte.is_ascii_graphic());
    // A later version may append fields; this one has exactly four.
    let ends = version != "00" || fields.next().is_none();
    version != "ff" && nonzero(trace) && nonzero(parent) && ends && visible
}

/// Whether `text` is a trace state: members of different keys, at least one.
///
/// spec: W3C Trace Context, 3.3.1
pub fn is_tracestate(text: &str) -> bool {
    if text.len() > TRACESTATE_BYTES || text.trim_matches(is_blank) != text {
        return false;
    }
    let mut keys = Vec::new();
    for member in text.split(',').map(|member| member.trim_matches(is_blank)) {
        // An empty member is one, and says nothing.
        if member.is_empty() {
            continue;
        }
        let Some((key, value)) = member.split_once('=') else { return false };
        if !is_state_key(key) || !is_state_value(value) || keys.contains(&key) {
            return false;
        }
        keys.push(key);
    }
    (1..=TRACESTATE_MEMBERS).contains(&keys.len())
}

fn is_state_key(key: &str) -> bool {
    let legal = |text: &str, most: usize| {
        let rest = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-*/".contains(&byte);
        (1..=most).contains(&text.len()) && text.bytes().all(rest)
    };
    let begins_with_letter = |text: &str| text.starts_with(|first: char| first.is_ascii_lowercase());
    match key.split_once('@') {
        None => legal(key, 256) && begins_with_letter(key),
        // A tenant may begin with a digit.
        Some((tenant, system)) => {
            let tenant_fits = legal(tenant, 241) && tenant.starts_with(|c: char| c.is_ascii_alphanumeric());
            tenant_fits && legal(system, 14) && begins_with_letter(system)
        }
    }
}

fn is_state_value(value: &str) -> bool {
    let legal = |byte: u8| matches!(byte, b' '..=b'~') && byte != b',' && byte != b'=';
    (1..=256).contains(&value.len()) && value.bytes().all(legal) && !value.ends_with(' ')
}

/// The members of a baggage that have one of these keys, as they came; `None` where there is none, or
/// where it is no baggage.
///
/// spec: W3C Baggage, 3.3.1
pub fn allowed_baggage(text: &str, keys: &[String]) -> Option<String> {
    if text.len() > BAGGAGE_BYTES {
        return None;
    }
    let members: Vec<&str> = text.split(',').map(|member| member.trim_matches(is_blank)).collect();
    if members.len() > BAGGAGE_MEMBERS {
        return None;
    }
    let mut allowed = Vec::new();
    for member in members {
        let key = baggage_key(member)?;
        if keys.iter().any(|known| known == key) {
            allowed.push(member);
        }
    }
    (!allowed.is_empty()).then(|| allowed.join(","))
}

fn is_baggage_key(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(legal)
}

/// The key of a well-formed member.
fn baggage_key(member: &str) -> Option<&str> {
    let mut parts = member.split(';').map(|part| part.trim_matches(is_blank));
    let (key, value) = parts.next()?.split_once('=')?;
    let (key, value) = (key.trim_matches(is_blank), value.trim_matches(is_blank));
    let is_property = |property: &str| match property.split_once('=') {
        None => is_baggage_key(property),
        Some((key, value)) => {
            is_baggage_key(key.trim_matches(is_blank)) && is_baggage_value(value.trim_matches(is_blank))
        }
    };
    (is_baggage_key(key) && is_baggage_value(value) && parts.all(is_property)).then_some(key)
}

fn is_baggage_value(value: &str) -> bool {
    value.bytes().all(|byte| byte.is_ascii_graphic() && !b"\",;\\".contains(&byte))
}

fn is_blank(character: char) -> bool {
    character == ' ' || character == '\t'
}

#[cfg(test)]
mod tests {
    use super::allowed_baggage;
    use super::is_traceparent;
    use super::is_tracestate;

    // spec: row BW-16
    #[test]
    fn a_trace_parent_is_well_formed_or_none() {
        let parent = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        for (text, kept) in [
            (format!("00-{parent}"), true),
            (format!("cc-{parent}-what-comes-later"), true),
            (format!("cc-{parent}-line\nbreak"), false),
            (format!("cc-{parent}-größer"), false),
            (format!("00-{parent}-x"), false),
            (format!("ff-{parent}"), false),
            (format!(" 00-{parent}"), false),
            (format!("00-{}", parent.to_uppercase()), false),
            ("00-00000000000000000000000000000000-b7ad6b7169203331-01".to_owned(), false),
            ("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01".to_owned(), false),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1".to_owned(), false),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331".to_owned(), false),
            ("00-0af7651916cd43dd8448eb211c80319-b7ad6b71692033311-01".to_owned(), false),
            (format!("cc-{parent}-{}", "x".repeat(8 << 10)), false),
            (String::new(), false),
        ] {
            assert_eq!(is_traceparent(&text), kept, "{text:.100}");
        }
    }

    // spec: row BW-16
    #[test]
    fn a_trace_state_is_well_formed_or_none() {
        let members = |count: usize| (0..count).map(|n| format!("k{n}=v")).collect::<Vec<_>>().join(",");
        for (text, kept) in [
            ("congo=t61rcWkgMzE".to_owned(), true),
            ("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE".to_owned(), true),
            ("a=1 \t, b= 2".to_owned(), true),
            ("a=1,,b=2,".to_owned(), true),
            ("a_-*/0=!~".to_owned(), true),
            ("0tenant@system=x".to_owned(), true),
            (format!("{}=1", "a".repeat(256)), true),
            (format!("a={}", "v".repeat(256)), true),
            (members(32), true),
            (members(33), false),
            (format!("{}=1", "a".repeat(257)), false),
            (format!("a={}", "v".repeat(257)), false),
            (format!("{}@s=1", "a".repeat(242)), false),
            (format!("a@{}=1", "s".repeat(15)), false),
            (
                format!(
                    "a={},b={},c={},d={}",
                    "v".repeat(255),
                    "v".repeat(255),
                    "v".repeat(255),
                    "v".repeat(255)
                ),
                false,
            ),
            (String::new(), false),
            (",".to_owned(), false),
            (" a=1".to_owned(), false),
            ("a=1 ".to_owned(), false),
            ("a".to_owned(), false),
            ("a=".to_owned(), false),
            ("=1".to_owned(), false),
            ("A=1".to_owned(), false),
            ("0a=1".to_owned(), false),
            ("a@0s=1".to_owned(), false),
            ("a@b@c=1".to_owned(), false),
            ("a =1".to_owned(), false),
            ("a=1=2".to_owned(), false),
            ("a=1\r\nx: y".to_owned(), false),
            ("a=ü".to_owned(), false),
            ("a=1,a=2".to_owned(), false),
        ] {
            assert_eq!(is_tracestate(&text), kept, "{text:.100}");
        }
    }

    // spec: row BW-16
    #[test]
    fn only_the_allowed_members_of_a_well_formed_baggage_are_kept() {
        let keys = ["tier".to_owned(), "region".to_owned()];
        let members = |count: usize| vec!["tier=1"; count].join(",");
        for (text, kept) in [
            ("tier=gold", Some("tier=gold")),
            ("user=alice, tier=gold;p1;p2=v ,region=", Some("tier=gold;p1;p2=v,region=")),
            ("tier = gold%20one ; p = v", Some("tier = gold%20one ; p = v")),
            ("Tier=gold", None),
            ("user=alice", None),
            ("", None),
            ("tier", None),
            ("=gold", None),
            ("tier=gold,", None),
            ("tier=go ld", None),
            ("tier=\"gold\"", None),
            ("tier=g\\old", None),
            ("tier=gold;", None),
            ("tier=gold;p q", None),
            ("tier=ü", None),
            ("tier=gold\r\nx: y", None),
            ("ti er=gold", None),
            ("tier=gold,user=\u{7f}", None),
            (&*members(64), Some(&*members(64))),
            (&*members(65), None),
            (&*format!("tier={}", "v".repeat(8187)), Some(&*format!("tier={}", "v".repeat(8187)))),
            (&*format!("tier={}", "v".repeat(8188)), None),
        ] {
            assert_eq!(allowed_baggage(text, &keys).as_deref(), kept, "{text:.100}");
        }
        assert_eq!(allowed_baggage("tier=gold", &[]), None);
    }
}
