//! Public names: a backend's prefix and its own name, inside what every client takes.
//!
//! spec: server/tools, Tool Names

use aws_lc_rs::digest;

use crate::catalog::text;

/// Longest public name.
pub const NAME_BYTES: usize = 64;

/// Longest own name that is admitted: it travels to its backend in a header.
pub const OWN_NAME_BYTES: usize = 1024;

const MARK: &str = "--";
const DIGITS: usize = 12;
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Why an own name cannot have a public one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameProblem {
    /// Empty.
    #[error("its name is empty")]
    Empty,
    /// Over [`OWN_NAME_BYTES`].
    #[error("its name is longer than {OWN_NAME_BYTES} bytes")]
    Long,
    /// A control, bidi, zero-width or other invisible character.
    #[error("its name has a character that cannot be seen")]
    Hidden,
}

/// The public name of a backend's `own` name.
///
/// `{prefix}{own}` where that is at most 64 of `A-Z a-z 0-9 _ - .`; any other keeps its head,
/// other characters as `_`, and gets a tail of its hash. Two own names of one backend never
/// share a public name: a short one that looks like it had a tail gets one.
pub fn public_name(prefix: &str, own: &str) -> Result<String, NameProblem> {
    if own.is_empty() {
        return Err(NameProblem::Empty);
    }
    if own.len() > OWN_NAME_BYTES {
        return Err(NameProblem::Long);
    }
    if own.contains(text::is_hidden) {
        return Err(NameProblem::Hidden);
    }
    let whole = format!("{prefix}{own}");
    if whole.len() <= NAME_BYTES && whole.chars().all(is_plain) && !has_tail(&whole) {
        return Ok(whole);
    }
    let head = whole.chars().map(|c| if is_plain(c) { c } else { '_' });
    let mut name: String = head.take(NAME_BYTES - MARK.len() - DIGITS).collect();
    name.push_str(MARK);
    let hash = digest::digest(&digest::SHA256, format!("{}:{prefix}{own}", prefix.len()).as_bytes());
    name.extend(hash.as_ref()[..DIGITS].iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])));
    Ok(name)
}

fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | '.')
}

fn has_tail(name: &str) -> bool {
    let Some((head, tail)) = name.len().checked_sub(DIGITS).and_then(|at| name.split_at_checked(at)) else {
        return false;
    };
    head.ends_with(MARK) && tail.bytes().all(|byte| ALPHABET.contains(&byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::prop;
    use proptest::prelude::proptest;
    use proptest::prop_assert;
    use proptest::prop_assert_eq;
    use proptest::prop_assert_ne;

    use super::NameProblem;
    use super::public_name;

    #[test]
    fn what_fits_stays_as_it_is() {
        assert_eq!(public_name("crm_", "get.user-2").unwrap(), "crm_get.user-2");
        assert_eq!(public_name("", &"a".repeat(64)).unwrap(), "a".repeat(64));
    }

    #[test]
    fn what_does_not_fit_keeps_its_head() {
        let long = public_name("crm_", &"a".repeat(61)).unwrap();
        assert_eq!(long.len(), 64);
        assert!(long.starts_with("crm_aaaa"));
        assert_eq!(long, public_name("crm_", &"a".repeat(61)).unwrap(), "stable");
        assert_ne!(long, public_name("crm_", &"a".repeat(62)).unwrap());
        assert!(public_name("", "日本 x").unwrap().starts_with("___x--"));
        // A name that imitates a tail.
        let tailed = public_name("", "日本").unwrap();
        assert_ne!(public_name("", &tailed).unwrap(), tailed);
    }

    #[test]
    fn names_that_cannot_be_seen_are_refused() {
        assert_eq!(public_name("crm_", ""), Err(NameProblem::Empty));
        assert_eq!(public_name("", &"a".repeat(1025)), Err(NameProblem::Long));
        for hidden in ["a\nb", "a\u{202e}b", "a\u{200b}", "\u{e0041}", "\0", "\u{7f}"] {
            assert_eq!(public_name("", hidden), Err(NameProblem::Hidden), "{hidden:?}");
        }
    }

    proptest! {
        #[test]
        fn public_names_are_short_plain_and_injective(
            prefix in prop::sample::select(vec!["", "crm_", "a-prefix.that-is-rather-long_but-still-allowed_"]),
            one in "[a-zA-Z0-9_.\\-é ]{1,80}",
            other in "[a-zA-Z0-9_.\\-é ]{1,80}",
        ) {
            let name = public_name(prefix, &one).unwrap();
            prop_assert!(name.len() <= 64);
            prop_assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b)));
            prop_assert_eq!(&name, &public_name(prefix, &one).unwrap());
            if one != other {
                prop_assert_ne!(&name, &public_name(prefix, &other).unwrap());
            }
            // Names made of public names, too.
            if prefix.is_empty() && one != name {
                prop_assert_ne!(&name, &public_name(prefix, &name).unwrap());
            }
        }
    }
}
