//! The bearer token of a request: in the `Authorization` header, and nowhere else.

use http::HeaderMap;
use http::header::AUTHORIZATION;

use crate::auth::error::AuthError;
use crate::auth::error::Reason;

/// The one token that `headers` present.
///
/// Absent credentials and other schemes are [`AuthError::MissingToken`], to which the challenge
/// names no error; repeated, listed, empty or ungrammatical ones are an invalid token.
// spec: authorization, Access Token Usage (RFC 6750, section 2.1)
pub(super) fn token(headers: &HeaderMap, max_bytes: usize) -> Result<&str, AuthError> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().ok_or(AuthError::MissingToken)?;
    if values.next().is_some() {
        return Err(Reason::Repeated.into());
    }
    let value = value.to_str().map_err(|_| Reason::Credentials)?;
    let (scheme, credentials) = value.split_once(' ').unwrap_or((value, ""));
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(AuthError::MissingToken);
    }
    let token = credentials.trim_matches(' ');
    if token.len() > max_bytes {
        return Err(Reason::TooLong.into());
    }
    if is_token68(token) { Ok(token) } else { Err(Reason::Credentials.into()) }
}

fn is_token68(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"-._~+/".contains(&b);
    !body.is_empty() && body.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use http::HeaderValue;
    use http::header::AUTHORIZATION;

    use super::token;

    #[test]
    fn one_bearer_token_in_one_header_is_taken() {
        let missing = "Err(MissingToken)";
        let repeated = "Err(InvalidToken(Repeated))";
        let wrong = "Err(InvalidToken(Credentials))";
        let cases: [(&[&str], &str); 16] = [
            (&[], missing),
            (&["Basic dXNlcjpwYXNz"], missing),
            (&["DPoP abc"], missing),
            (&["Bearerabc"], missing),
            (&["Bearer abc"], "Ok(\"abc\")"),
            (&["bEARER  a.b-c_d~e+f/g== "], "Ok(\"a.b-c_d~e+f/g==\")"),
            (&["Bearer"], wrong),
            (&["Bearer "], wrong),
            (&["Bearer ="], wrong),
            (&["Bearer a=b"], wrong),
            (&["Bearer abc, Bearer x"], wrong),
            (&["Bearer abc x"], wrong),
            (&["Bearer \"abc\""], wrong),
            (&["Bearer abc", "Bearer not-a-token"], repeated),
            (&["Basic abc", "Bearer abc"], repeated),
            (&["Bearer abcdefghijklmnopqrstuvwxyz"], "Err(InvalidToken(TooLong))"),
        ];
        for (values, expected) in cases {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, HeaderValue::from_static(value));
            }
            assert_eq!(format!("{:?}", token(&headers, 20)), expected, "{values:?}");
        }
    }
}
