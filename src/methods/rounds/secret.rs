//! Forms that ask for a secret: passwords, tokens, keys, card numbers. What is typed into a form passes
//! through the client, and its model may read it.
//!
//! spec: client/elicitation, User Interaction Model
//!
//! A field is judged by whole words of its name and title, and by clear phrases of its description. A
//! field that only has a choice, or yes and no, holds no secret. A message, and what a form says of itself,
//! is judged by what it tells its reader to type, where there is a field that takes it.

use crate::catalog::text::is_hidden;
use crate::protocol::json::Json;
use crate::protocol::json::Kind;

/// What names a secret wherever it stands, as words.
const PHRASES: &[&[&str]] = &[
    &["password"],
    &["passwords"],
    &["pass", "word"],
    &["pass", "words"],
    &["pass", "phrase"],
    &["pass", "code"],
    &["passwd"],
    &["passphrase"],
    &["passcode"],
    &["pwd"],
    &["passwort"],
    &["kennwort"],
    &["contraseña"],
    &["contrasena"],
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
    &["reset", "code"],
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

/// What, directly behind it, makes it something about the secret in place of the secret.
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
    "reset",
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

/// What makes a token a place in a list, or the handle of something that goes on.
const TOKENS: &[&str] =
    &["cancel", "cancellation", "continuation", "cursor", "next", "page", "pagination", "prev", "sync"];

/// What makes a card one that nobody pays with.
const CARDS: &[&str] = &["bonus", "club", "customer", "library", "loyalty", "member", "membership"];

/// What begins a question about something that is there already.
const QUESTIONS: &[&str] = &["how", "when", "where", "why"];

/// What says the opposite when it stands shortly before a phrase.
const NEGATIONS: &[&str] = &["don", "never", "no", "not", "whose", "without"];

/// What asks for what stands shortly behind it.
const DEMANDS: &[&str] = &[
    "enter", "fill", "give", "input", "need", "paste", "provide", "send", "share", "submit", "supply",
    "tell", "type", "what", "write",
];

/// How far before it.
const REACH: usize = 4;

/// What a secret is that nobody asks for, in a description.
const THERE: &str = "configured";

/// What a field of digits may hold.
const DIGITS: &[&str] =
    &["pin", "otp", "totp", "cvv", "cvc", "code", "card", "number", "passcode", "pincode"];

/// Most words of the name of such a field that has no word of those in it.
const DIGITS_WORDS: usize = 3;

/// What ends a clause, before or behind a blank.
const MARKS: &[char] = &[',', ';', ':', '(', ')', '[', ']', '.', '!', '?', '\u{2013}', '\u{2014}'];

/// What is no text that somebody thinks of.
const FORMATS: &[&str] = &["date", "date-time", "email", "uri"];

/// Whether a form with this message and this schema asks for a secret, however deep in it.
///
/// spec: row MR-07
pub(super) fn is_asked(message: &str, schema: &Json) -> bool {
    let texts = ["title", "description"].map(|key| text(schema, key));
    let demands = || texts.iter().flatten().map(String::as_str).chain([message]).any(demands_secret);
    has_field(schema, &is_secret) || has_field(schema, &|_, field| is_free(field)) && demands()
}

/// Whether there is such a field in a schema, however deep in it.
fn has_field(schema: &Json, is: &dyn Fn(&str, &Json) -> bool) -> bool {
    schema.members().any(|(key, value)| match (&*key, value.kind()) {
        ("properties", Kind::Object) => {
            value.members().any(|(name, field)| is(&name, &field) || has_field(&field, is))
        }
        (_, Kind::Object) => has_field(&value, is),
        (_, Kind::Array) => value.elements().any(|element| has_field(&element, is)),
        _ => false,
    })
}

fn text(field: &Json, key: &str) -> Option<String> {
    field.member(key).and_then(|text| text.string())
}

/// Whether a field lets its user choose, and do nothing else. What a list is chosen from is said by its
/// items; for anything else nobody reads them.
fn is_choice(field: &Json) -> bool {
    let items = field.member("items").filter(|_| text(field, "type").as_deref() == Some("array"));
    is_closed(field) || items.is_some_and(|items| is_closed(&items))
}

/// Whether a schema names all of its values.
fn is_closed(field: &Json) -> bool {
    let all = |key: &str, is: fn(&Json) -> bool| {
        field
            .member(key)
            .is_some_and(|of| of.elements().next().is_some() && of.elements().all(|one| is(&one)))
    };
    let is_const = |one: &Json| one.member("const").is_some();
    all("enum", |_| true) || all("oneOf", is_const) || all("anyOf", is_const) || is_const(field)
}

/// Whether anything can be typed into a field.
fn is_free(field: &Json) -> bool {
    let has = |key: &str, list: &[&str]| text(field, key).is_some_and(|of| list.contains(&of.as_str()));
    !has("type", &["boolean"]) && !has("format", FORMATS) && !is_choice(field)
}

fn is_secret(name: &str, field: &Json) -> bool {
    if text(field, "format").is_some_and(|format| format.eq_ignore_ascii_case("password")) {
        return true;
    }
    let digits = match text(field, "type").as_deref() {
        Some("boolean") => return false,
        Some("number" | "integer") => true,
        _ => false,
    };
    if is_choice(field) {
        return false;
    }
    let titles = [Some(name.to_owned()), text(field, "title")];
    let names = |title: &String| clauses(title).iter().any(|words| names_secret(words, digits));
    let describes = |text: &String| clauses(text).iter().any(|words| describes_secret(words, digits));
    let parts = ["oneOf", "anyOf", "allOf"].map(|key| field.member(key));
    titles.iter().flatten().any(names)
        || text(field, "description").iter().any(describes)
        || field.member("items").is_some_and(|items| is_secret("", &items))
        || parts.iter().flatten().any(|of| of.elements().any(|part| is_secret("", &part)))
}

fn is_in(word: Option<&String>, list: &[&str]) -> bool {
    word.is_some_and(|word| list.contains(&word.as_str()))
}

/// Whether a name or a title is that of a secret; of one in digits.
fn names_secret(words: &[String], digits: bool) -> bool {
    let end = words.iter().rposition(|word| !FILLERS.contains(&word.as_str())).map_or(0, |last| last + 1);
    let has_digits = words.iter().any(|word| DIGITS.contains(&word.as_str()));
    let fits = |at: usize, length: usize| !digits || has_digits || at + length >= end && end <= DIGITS_WORDS;
    if phrases(words).any(|(at, length)| !is_in(words.get(at + length), ABOUT) && fits(at, length)) {
        return true;
    }
    let Some((last, before)) = words[..end].split_last() else { return false };
    LAST.contains(&last.as_str())
        && !(last == "token" && is_in(before.last(), TOKENS))
        && !is_in(words.first(), QUESTIONS)
        && (!digits || has_digits)
}

/// Whether a description tells its reader to give a secret; one in digits.
fn describes_secret(words: &[String], digits: bool) -> bool {
    (!digits || words.iter().any(|word| DIGITS.contains(&word.as_str())))
        && phrases(words).any(|(at, length)| {
            let (before, next) = (&words[at.saturating_sub(REACH)..at], words.get(at + length));
            let is_there = is_in(next, &[THERE]) && !before.iter().any(|word| is_in(Some(word), DEMANDS));
            !is_there && !is_in(next, ABOUT) && !before.iter().any(|word| is_in(Some(word), NEGATIONS))
        })
}

/// Whether a message tells its reader to type a secret, or is the name of one.
fn demands_secret(message: &str) -> bool {
    clauses(message).iter().any(|words| {
        let weak = |(at, word): (usize, &String)| {
            let own = at.checked_sub(1).is_some_and(|before| words[before] == "your");
            (own && LAST.contains(&word.as_str())).then_some((at, 1))
        };
        phrases(words).chain(words.iter().enumerate().filter_map(weak)).any(|(at, length)| {
            let before = &words[at.saturating_sub(REACH)..at];
            let is_said = before.iter().any(|word| is_in(Some(word), DEMANDS));
            let is_label = at + length == words.len() && (at == 0 || is_in(words.first(), &["your"]));
            (is_said || is_label)
                && !is_in(words.get(at + length), ABOUT)
                && !before.iter().any(|word| is_in(Some(word), NEGATIONS))
        })
    })
}

/// Where phrases stand, and how long each of them is.
fn phrases(words: &[String]) -> impl Iterator<Item = (usize, usize)> {
    let at = |start: usize| {
        let rest = &words[start..];
        let fits = move |phrase: &&&[&str]| {
            rest.len() >= phrase.len() && phrase.iter().zip(rest).all(|(one, other)| one == other)
        };
        let is_paid_with =
            |phrase: &&&[&str]| phrase.first() != Some(&"card") || !is_in(words[..start].last(), CARDS);
        PHRASES.iter().find(fits).filter(is_paid_with).map(|phrase| (start, phrase.len()))
    };
    (0..words.len()).filter_map(at)
}

/// The words of each clause of a text.
fn clauses(text: &str) -> Vec<Vec<String>> {
    let text = plain(text);
    let is_blank = |letter: Option<char>| letter.is_none_or(char::is_whitespace);
    let (mut clauses, mut clause) = (Vec::new(), String::new());
    let (mut before, mut letters) = (None, text.chars().peekable());
    while let Some(letter) = letters.next() {
        if MARKS.contains(&letter) && (is_blank(before) || is_blank(letters.peek().copied())) {
            clauses.push(words(&std::mem::take(&mut clause)));
        } else {
            clause.push(letter);
        }
        before = Some(letter);
    }
    clauses.push(words(&clause));
    clauses.retain(|words| !words.is_empty());
    clauses
}

/// The text as it is read: without what nobody sees and without accents of their own, full-width letters
/// as all others.
fn plain(text: &str) -> String {
    let is_kept = |letter: &char| {
        letter.is_whitespace()
            || !is_hidden(*letter)
                && !matches!(*letter,
                    '\u{300}'..='\u{36f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
                    | '\u{180b}'..='\u{180f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}')
    };
    let narrow = |letter: char| match letter {
        '\u{ff01}'..='\u{ff5e}' => {
            u32::from(letter).checked_sub(0xfee0).and_then(char::from_u32).unwrap_or(letter)
        }
        other => other,
    };
    text.chars().filter(is_kept).map(narrow).collect()
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
        credentials, pass_word, passWord, pass-phrase, passwordForAccountEmail, pass\u{200b}word, \
        p\u{ad}assword, pass\u{fe0f}word, p\u{301}assword, contrasen\u{303}a, \
        \u{ff50}\u{ff41}\u{ff53}\u{ff53}\u{ff57}\u{ff4f}\u{ff52}\u{ff44}, password_reset_code, \
        next_access_token, gift_card_number";

    const HARMLESS: &str = "name, email, token_count, tokenCount, max_tokens, tokens, tokenize, pinned, pinned_at, \
        pin_position, pineapple, spin, opinion, secretary, secret_name, password_policy, \
        passwordLength, password_hint, passage, compass, key, keyboard, monkey, sort_key, \
        primary_key, api, api_key_id, api_version, card, card_holder, access_level, code, zip_code, \
        country_code, authority, author, keyword, recovery, verification, discovery_code, cv, city, \
        otpion, page_token, continuationToken, next_token, nextPageToken, sync_token, cancellationToken, \
        loyalty_card_number, membershipCardNumber, password_reset_url, pass";

    fn asks(schema: &str) -> bool {
        told("m", schema)
    }

    fn told(message: &str, schema: &str) -> bool {
        is_asked(message, &Json::parse(Bytes::copy_from_slice(schema.as_bytes()), 64).expect(schema))
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
            (r#""password":{"anyOf":[{"minLength":1}]}"#, true),
            (r#""password":{"oneOf":[{"type":"string"}]}"#, true),
            (r#""password":{"oneOf":[{"const":"a"},{"type":"string"}]}"#, true),
            (r#""password":{"oneOf":[]}"#, true),
            (r#""password":{"enum":[]}"#, true),
            (r#""password":{"type":"array","items":{"type":"string"}}"#, true),
            (r#""password":{"type":"integer"}"#, true),
            (r#""a":{"type":"array","items":{"type":"string","title":"Password"}}"#, true),
            (r#""a":{"anyOf":[{"type":"string","title":"Password"}]}"#, true),
            (r#""a":{"type":"string","title":"Password for your account email"}"#, true),
            (r#""a":{"type":"string","title":"API key and user name"}"#, true),
            (r#""a":{"type":"string","title":"Token (from your settings)"}"#, true),
            (r#""a":{"type":"string","title":"Password: type it here"}"#, true),
            (r#""a":{"type":"string","description":"Do not worry: password of your bank"}"#, true),
            (r#""a":{"type":"string","description":"Enter the API key configured for it"}"#, true),
            (r#""a":{"type":"string","title":"How should we send the password reset?"}"#, false),
            (r#""a":{"type":"string","title":"Where to drop the pin"}"#, false),
            (
                r#""a":{"type":"string","description":"Repository; the API key configured for it is used"}"#,
                false,
            ),
            (r#""a":{"type":"string","title":"Password","items":{"enum":["x"]}}"#, true),
            (r#""password":{"items":{"enum":["keep","change"]}}"#, true),
            (r#""password":{"type":"array","items":{"items":{"enum":["a"]}}}"#, true),
            (r#""password":{"type":"array","items":{"enum":["keep","change"]}}"#, false),
            (r#""password":{"type":"array","items":{"anyOf":[{"const":"k"}]}}"#, false),
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

    // spec: row MR-07
    #[test]
    fn a_message_does_not_ask_for_what_no_field_may() {
        let form = |field: &str| format!(r#"{{"type":"object","properties":{{"a":{field}}}}}"#);
        let free = form(r#"{"type":"string"}"#);
        for (message, secret) in [
            ("Type your GitHub password below", true),
            ("Please enter your PIN.", true),
            ("Paste your token here", true),
            ("What is your pass\u{200b}word?", true),
            ("Password:", true),
            ("Your GitHub password", true),
            ("Who are you?", false),
            ("Type your user name. Do not type your password.", false),
            ("The password policy has changed. Who approves it?", false),
            ("Enter the password length", false),
            ("Your password has expired. Where should the link go?", false),
            ("Send the user whose password has expired", false),
            ("How many tokens may it take?", false),
        ] {
            assert_eq!(told(message, &free), secret, "{message}");
            for field in
                [r#"{"type":"boolean"}"#, r#"{"enum":["a"]}"#, r#"{"type":"string","format":"email"}"#]
            {
                assert!(!told(message, &form(field)), "{message} {field}");
            }
        }
        let described = free.replacen('{', r#"{"description":"Enter your password","#, 1);
        assert!(told("m", &described));
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
