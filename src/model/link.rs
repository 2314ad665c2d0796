//! URLs in messages and logs.

/// `url`, or what was meant to be one, without the parts that may be secrets: no user name, no
/// password, no query, no fragment. Where it cannot be told what they are, less is left.
pub fn shown(url: &str) -> String {
    let (kept, cut) = url.split_at(url.find(['?', '#']).unwrap_or(url.len()));
    let scheme = kept.split_once("://").map_or("", |(scheme, _)| &kept[..scheme.len() + 3]);
    match kept.rsplit_once('@') {
        // A password may hold what looks like the beginning of a query.
        _ if cut.contains('@') => format!("{scheme}…"),
        Some((_, host)) => format!("{scheme}…@{host}"),
        None if cut.is_empty() => kept.to_owned(),
        None => format!("{kept}?…"),
    }
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn what_may_be_a_secret_is_not_shown() {
        let cases = [
            ("https://a.example/mcp", "https://a.example/mcp"),
            ("https://a.example/mcp?key=secret", "https://a.example/mcp?…"),
            ("https://a.example/mcp#secret", "https://a.example/mcp?…"),
            ("https://u:secret@a.example/mcp", "https://…@a.example/mcp"),
            ("https://u:secr@et@a.example?key=secret", "https://…@a.example"),
            ("https://u:sec?ret@a.example", "https://…"),
            ("https://u:sec/ret@a.example?b", "https://…@a.example"),
            ("https:\\\\u:secret@a.example", "…@a.example"),
            ("a.example?secret", "a.example?…"),
            ("", ""),
        ];
        for (url, expected) in cases {
            assert_eq!(shown(url), expected, "{url}");
        }
    }
}
