//! What a client is told when it has to come back with a better token: challenges and metadata.
//!
//! Everything in them comes from the endpoint, which comes from configuration; nothing from
//! the request.

use http::HeaderValue;
use serde_json::Value;
use serde_json::json;

use crate::auth::error::AuthError;
use crate::auth::error::Reason;
use crate::model::endpoint::Endpoint;
use crate::model::endpoint::Owner;
use crate::model::scope::Scopes;

/// The `WWW-Authenticate` of a 401. It names an error only if a token was presented.
// spec: authorization, Protected Resource Metadata Discovery Requirements; Scope Selection Strategy
pub fn challenge(error: &AuthError, endpoint: &Endpoint) -> HeaderValue {
    let mut parts = vec![("resource_metadata", endpoint.metadata.to_string())];
    let scopes = offered(endpoint);
    if !scopes.is_empty() {
        parts.push(("scope", scopes.joined()));
    }
    if let AuthError::InvalidToken(reason) = error {
        parts.push(("error", "invalid_token".to_owned()));
        parts.push(("error_description", reason.to_string()));
    }
    bearer(&parts)
}

/// The challenge of a token that names a tenant which this endpoint does not serve.
pub fn wrong_tenant(endpoint: &Endpoint) -> HeaderValue {
    challenge(&AuthError::InvalidToken(Reason::Tenant), endpoint)
}

/// The `WWW-Authenticate` of a 403 to a token that lacks some of the scopes `needed`. All of
/// them are named, so that one more authorization is enough.
// spec: authorization, Runtime Insufficient Scope Errors
pub fn insufficient_scope(needed: &Scopes, endpoint: &Endpoint) -> HeaderValue {
    bearer(&[
        ("error", "insufficient_scope".to_owned()),
        ("scope", needed.joined()),
        ("resource_metadata", endpoint.metadata.to_string()),
        ("error_description", "the token lacks a scope that is needed".to_owned()),
    ])
}

/// The endpoint's protected resource metadata document.
// spec: authorization, Authorization Server Location (RFC 9728, section 2)
pub fn resource_metadata(endpoint: &Endpoint) -> Value {
    let mut servers: Vec<&str> = Vec::new();
    for trust in endpoint.trust.iter() {
        if !servers.contains(&&*trust.issuer.url) {
            servers.push(&trust.issuer.url);
        }
    }
    let mut document = json!({
        "resource": &*endpoint.resource,
        "authorization_servers": servers,
        "bearer_methods_supported": ["header"],
    });
    let scopes = offered(endpoint);
    if !scopes.is_empty() {
        document["scopes_supported"] = scopes.iter().collect();
    }
    document
}

/// What a client should ask for. `offline_access` is between it and its authorization server;
/// an endpoint of nobody offers what a stranger may know of it: nothing.
fn offered(endpoint: &Endpoint) -> Scopes {
    if endpoint.owner == Owner::Nobody {
        return Scopes::default();
    }
    endpoint.scopes_offered.iter().filter(|s| *s != "offline_access").collect()
}

fn bearer(parts: &[(&str, String)]) -> HeaderValue {
    let quoted = parts.iter().map(|(name, value)| {
        // Neither ends the quoted string early nor leaves the grammar of RFC 6750, section 3.
        let safe = |c: &char| matches!(c, ' '..='~') && !matches!(c, '"' | '\\');
        format!("{name}=\"{}\"", value.chars().filter(safe).collect::<String>())
    });
    let text = format!("Bearer {}", quoted.collect::<Vec<_>>().join(", "));
    HeaderValue::from_str(&text).expect("only printable ASCII was let through")
}

#[cfg(test)]
mod tests {
    use crate::auth::error::Reason;
    use std::sync::Arc;

    use serde_json::json;

    use super::challenge;
    use super::insufficient_scope;
    use super::resource_metadata;
    use crate::auth::error::AuthError;
    use crate::model::endpoint::Endpoint;
    use crate::model::endpoint::Issuer;
    use crate::model::endpoint::Owner;
    use crate::model::endpoint::TenantRule;
    use crate::model::endpoint::Trust;
    use crate::model::name::TenantName;
    use crate::model::scope::Scopes;

    fn endpoint(scopes: &str) -> Endpoint {
        let trust = |url: &str| Trust {
            issuer: Arc::new(Issuer {
                owner: None,
                url: url.into(),
                jwks_uri: None,
                algorithms: vec![],
                introspection: None,
            }),
            audiences: Arc::new([]),
            tenant: TenantRule::Claim("org".into()),
        };
        Endpoint {
            owner: Owner::Tenant(TenantName::new("acme").unwrap()),
            resource: "https://gw.example/t/acme/mcp".into(),
            metadata: "https://gw.example/.well-known/oauth-protected-resource/t/acme/mcp".into(),
            trust: [trust("https://a.example"), trust("https://b.example/x"), trust("https://a.example")]
                .into(),
            scopes_offered: Scopes::parse(scopes),
            handshake: true,
            revision: 0,
        }
    }

    const METADATA: &str =
        r#"resource_metadata="https://gw.example/.well-known/oauth-protected-resource/t/acme/mcp""#;

    #[test]
    fn a_challenge_names_an_error_only_if_a_token_was_presented() {
        let plain = challenge(&AuthError::MissingToken, &endpoint(""));
        assert_eq!(plain, format!("Bearer {METADATA}"));
        let scoped = challenge(&AuthError::MissingToken, &endpoint("b a offline_access"));
        assert_eq!(scoped, format!(r#"Bearer {METADATA}, scope="a b""#));
        let refused = challenge(&Reason::Expired.into(), &endpoint("a"));
        let said = r#"error="invalid_token", error_description="the token has expired""#;
        assert_eq!(refused, format!(r#"Bearer {METADATA}, scope="a", {said}"#));
    }

    #[test]
    fn an_endpoint_of_nobody_offers_no_scopes() {
        let nobody = Endpoint { owner: Owner::Nobody, ..endpoint("a b") };
        assert_eq!(challenge(&AuthError::MissingToken, &nobody), format!("Bearer {METADATA}"));
        assert!(resource_metadata(&nobody).get("scopes_supported").is_none());
    }

    #[test]
    fn insufficient_scope_names_all_that_is_needed() {
        let said = insufficient_scope(&Scopes::parse("crm.write crm.read"), &endpoint(""));
        let said = said.to_str().unwrap();
        assert!(
            said.starts_with(r#"Bearer error="insufficient_scope", scope="crm.read crm.write", "#),
            "{said}"
        );
        assert!(said.contains(METADATA), "{said}");
    }

    #[test]
    fn nothing_leaves_its_quotes() {
        let odd = Endpoint { metadata: "https://a\"b\\c\r\nd\u{7f}é".into(), ..endpoint("") };
        let said = challenge(&AuthError::MissingToken, &odd);
        assert_eq!(said, r#"Bearer resource_metadata="https://abcd""#);
    }

    #[test]
    fn the_metadata_document_comes_from_configuration() {
        let document = resource_metadata(&endpoint("a offline_access"));
        let expected = json!({
            "resource": "https://gw.example/t/acme/mcp",
            "authorization_servers": ["https://a.example", "https://b.example/x"],
            "bearer_methods_supported": ["header"],
            "scopes_supported": ["a"],
        });
        assert_eq!(document, expected);
        assert!(resource_metadata(&endpoint("offline_access")).get("scopes_supported").is_none());
    }
}
