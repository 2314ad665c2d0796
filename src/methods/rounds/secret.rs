//! Forms that ask for a secret: passwords, tokens, keys, card numbers. What is typed into a form passes
//! through the client, and its model may read it.
//!
//! spec: client/elicitation, User Interaction Model
//!
//! A field is judged by whole words of its name and title, and by clear phrases of its description. A
//! field that only has a choice, or yes and no, holds no secret.

use crate::protocol::json::Json;
use crate::protocol::json::Kind;

/// What names a secret wherever it stands, as words.
const PHRASES: &[&[&str]] = &[
    &["password"],
    &["passwords"],
    &["passwd"],
    &["passphrase"],
    &["passcode"],
    &["pwd"],
    &["passwort"],
    &["kennwort"],
    &["contraseña"],
    &["senha"],
    &["mot", "de", "passe"],
    &["apikey"],
    &["api", "key"],
    &["api", "keys"],
    &["access", "key"],
    &["secret", "key"],
    &["private", "key"],
    &["privatekey"],
    &["ssh", "key"],
    &["signing", "key"],
    &["encryption", "key"],
    &["client", "secret"],
    &["access", "token"],
    &["api", "token"],
    &["auth", "token"],
    &["authentication", "token"],
    &["authorization", "token"],
    &["bearer", "token"],
    &["refresh", "token"],
    &["session", "token"],
    &["id", "token"],
    &["seed", "phrase"],
    &["recovery", "phrase"],
    &["recovery", "code"],
    &["backup", "code"],
    &["verification", "code"],
    &["authentication", "code"],
    &["one", "time", "code"],
    &["otp"],
    &["totp"],
    &["pin", "code"],
    &["pin", "number"],
    &["pincode"],
    &["security", "code"],
    &["cvv"],
    &["cvc"],
    &["card", "number"],
    &["cardnumber"],
    &["credit", "card"],
    &["debit", "card"],
];

/// What names a secret where nothing but a filler follows it.
const LAST: &[&str] = &["token", "secret", "secrets", "pin", "credential", "credentials"];

/// What may follow and changes nothing.
const FILLERS: &[&str] =
    &["again", "code", "confirm", "confirmation", "field", "input", "repeat", "string", "text", "value"];

/// What, at the end of a name, makes it something about the secret in place of the secret.
const ABOUT: &[&str] = &[
    "age",
    "algorithm",
    "attempts",
    "budget",
    "count",
    "date",
    "days",
    "email",
    "expiration",
    "expires",
    "expiry",
    "format",
    "hint",
    "holder",
    "id",
    "label",
    "length",
    "limit",
    "link",
    "location",
    "manager",
    "name",
    "path",
    "policy",
    "position",
    "provider",
    "reference",
    "rotation",
    "rules",
    "size",
    "store",
    "strength",
    "symbol",
    "ttl",
    "type",
    "uri",
    "url",
    "usage",
    "vault",
    "version",
];

/// What says the opposite when it stands shortly before a phrase.
const NEGATIONS: &[&str] = &["don", "never", "no", "not", "without"];

/// How far before it.
const NEGATION_REACH: usize = 4;

/// What a field of digits may hold.
const DIGITS: &[&str] =
    &["pin", "otp", "totp", "cvv", "cvc", "code", "card", "number", "passcode", "pincode"];

/// Whether a form with this schema asks for a secret, however deep in it.
///
/// spec: row MR-07
pub(super) fn is_asked(schema: &Json) -> bool {
    schema.members().any(|(key, value)| match (&*key, value.kind()) {
        ("properties", Kind::Object) => {
            value.members().any(|(name, field)| is_secret(&name, &field) || is_asked(&field))
        }
        (_, Kind::Object) => is_asked(&value),
        (_, Kind::Array) => value.elements().any(|element| is_asked(&element)),
        _ => false,
    })
}

fn is_secret(name: &str, field: &Json) -> bool {
    let text = |key: &str| field.member(key).and_then(|text| text.string());
    if text("format").is_some_and(|format| format.eq_ignore_ascii_case("password")) {
        return true;
    }
    let is_choice = ["enum", "oneOf", "anyOf", "const"].iter().any(|key| field.member(key).is_some());
    let digits = match text("type").as_deref() {
        Some("boolean" | "array" | "object") => return false,
        Some("number" | "integer") => true,
        _ => false,
    };
    let says = |words: &[String], of: &dyn Fn(&[String]) -> bool| {
        of(words) && (!digits || words.iter().any(|word| DIGITS.contains(&word.as_str())))
    };
    let titles = [Some(name.to_owned()), text("title")];
    let names = |title: &String| says(&words(title), &names_secret);
    let describes = |text: &String| says(&words(text), &describes_secret);
    !is_choice && (titles.iter().flatten().any(names) || text("description").iter().any(describes))
}

/// Whether a name or a title is that of a secret.
fn names_secret(words: &[String]) -> bool {
    let is = |word: Option<&String>, list: &[&str]| word.is_some_and(|word| list.contains(&word.as_str()));
    if is(words.last(), ABOUT) {
        return false;
    }
    let told = words.iter().rposition(|word| !FILLERS.contains(&word.as_str()));
    phrases(words).next().is_some() || is(told.and_then(|last| words.get(last)), LAST)
}

/// Whether a description tells its reader to give a secret.
fn describes_secret(words: &[String]) -> bool {
    phrases(words).any(|(at, length)| {
        let before = &words[at.saturating_sub(NEGATION_REACH)..at];
        let about = words.get(at + length).is_some_and(|next| ABOUT.contains(&next.as_str()));
        !about && !before.iter().any(|word| NEGATIONS.contains(&word.as_str()))
    })
}

/// Where phrases stand, and how long each of them is.
fn phrases(words: &[String]) -> impl Iterator<Item = (usize, usize)> {
    let at = |start: usize| {
        let rest = &words[start..];
        let fits = move |phrase: &&&[&str]| {
            rest.len() >= phrase.len() && phrase.iter().zip(rest).all(|(one, other)| one == other)
        };
        PHRASES.iter().find(fits).map(|phrase| (start, phrase.len()))
    };
    (0..words.len()).filter_map(at)
}

/// The words of a text or of an identifier, in lower case; digits apart from letters, and left out.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let (mut before, mut letters) = (None, text.chars().peekable());
    while let Some(letter) = letters.next() {
        let ends = match before {
            // `apiKey`, and the end of `API` in `APIKey`.
            Some(before) if letter.is_uppercase() => {
                !char::is_uppercase(before) || letters.peek().is_some_and(|next| next.is_lowercase())
            }
            _ => !letter.is_alphabetic(),
        };
        if ends && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| letter.is_alphabetic()) {
            word.extend(letter.to_lowercase());
        }
        before = Some(letter).filter(|letter| letter.is_alphabetic());
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::is_asked;
    use super::words;
    use crate::protocol::json::Json;

    const SECRETS: &str = "password, Password, newPassword, password_confirmation, password2, user.password, passwd, \
        passphrase, pwd, apiKey, APIKey, api_key, api-key, apikey, X-Api-Key, token, githubToken, \
        access_token, personal access token, token_value, secret, client_secret, clientSecret, \
        AWS_SECRET_ACCESS_KEY, pin, PIN, cardPin, pin_code, cvv, CVV2, cvc, cardNumber, creditCard, \
        privateKey, private_key, ssh_key, otp, one_time_code, recovery code, Passwort, contraseña, \
        credentials";

    const HARMLESS: &str = "name, email, token_count, tokenCount, max_tokens, tokens, tokenize, pinned, pinned_at, \
        pin_position, pineapple, spin, opinion, secretary, secret_name, password_policy, \
        passwordLength, password_hint, passage, compass, key, keyboard, monkey, sort_key, \
        primary_key, api, api_key_id, api_version, card, card_holder, access_level, code, zip_code, \
        country_code, authority, author, keyword, recovery, verification, discovery_code, cv, city, \
        otpion";

    fn asks(schema: &str) -> bool {
        is_asked(&Json::parse(Bytes::copy_from_slice(schema.as_bytes()), 64).expect(schema))
    }

    fn named(name: &str) -> bool {
        asks(&format!(r#"{{"type":"object","properties":{{"{name}":{{"type":"string"}}}}}}"#))
    }

    // spec: row MR-07
    #[test]
    fn names_of_secrets_are_told_from_names_like_them() {
        for secret in SECRETS.split(", ") {
            assert!(named(secret), "{secret}");
        }
        for harmless in HARMLESS.split(", ") {
            assert!(!named(harmless), "{harmless}");
        }
    }

    // spec: row MR-07
    #[test]
    fn a_field_is_judged_by_all_that_it_says_of_itself() {
        for (field, secret) in [
            (r#""a":{"type":"string","format":"password"}"#, true),
            (r#""a":{"type":"string","title":"Your API key"}"#, true),
            (r#""a":{"type":"string","description":"Enter your bank password."}"#, true),
            (r#""a":{"type":"string","description":"A personal access token with the scope repo"}"#, true),
            (r#""a":{"title":"Pass\u0077ord"}"#, true),
            (r#""pin":{"type":"integer"}"#, true),
            (r#""a":{"type":"number","title":"Card number"}"#, true),
            (r#""password":{"type":"boolean"}"#, false),
            (r#""password":{"type":"string","enum":["keep","change"]}"#, false),
            (r#""password":{"type":"string","oneOf":[{"const":"k","title":"Keep"}]}"#, false),
            (r#""a":{"type":"string","description":"Your user name, not your password."}"#, false),
            (r#""a":{"type":"string","description":"The password policy to apply"}"#, false),
            (r#""a":{"type":"string","description":"How many tokens to make"}"#, false),
            (r#""a":{"type":"integer","title":"Days until the password is old"}"#, false),
            (r#""a":{"type":"string","default":"password"}"#, false),
            (r#""a":{"type":"object","properties":{"password":{"type":"string"}}}"#, true),
        ] {
            let schema = format!(r#"{{"type":"object","properties":{{"n":{{"type":"string"}},{field}}}}}"#);
            assert_eq!(asks(&schema), secret, "{field}");
        }
        assert!(asks(r#"{"allOf":[{"properties":{"password":{}}}]}"#));
        assert!(!asks(r#"{"required":["password"],"properties":{}}"#));
    }

    #[test]
    fn identifiers_fall_into_words() {
        for (text, expected) in [
            ("apiKey", "api key"),
            ("APIKeyID", "api key id"),
            ("HTTP2_password9", "http password"),
            (" Größe-Über ", "größe über"),
            ("", ""),
            ("...", ""),
        ] {
            assert_eq!(words(text).join(" "), expected, "{text}");
        }
    }
}
