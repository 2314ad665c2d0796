//! Handles that open, and all that do not.

use std::os::unix::fs::PermissionsExt;

use proptest::prelude::any;
use proptest::prelude::prop;
use proptest::prelude::proptest;
use proptest::prop_assert;
use proptest::prop_assert_eq;

use super::Binding;
use super::HANDLE_BYTES;
use super::KeyRing;
use super::Purpose;
use super::SealError;
use crate::model::name::TenantName;

fn tenant(name: &str) -> TenantName {
    TenantName::new(name).unwrap()
}

fn binding<'a>(tenant: &'a TenantName, principal: &'a str, digest: &'a [u8]) -> Binding<'a> {
    Binding { purpose: Purpose::Cursor, tenant, principal, digest }
}

#[test]
fn a_handle_opens_only_where_it_belongs() {
    let ring = KeyRing::new(vec![[7; 32]]).unwrap();
    let (acme, other) = (tenant("acme"), tenant("acm"));
    let home = binding(&acme, "alice", b"d");
    let handle = ring.seal(&home, 100, b"payload");
    assert_eq!(ring.open(&home, &handle, 99).unwrap(), b"payload");
    assert!(matches!(ring.open(&home, &handle, 100), Err(SealError::Refused)));
    for stranger in [
        binding(&other, "alice", b"d"),
        binding(&acme, "bob", b"d"),
        binding(&acme, "alice", b""),
        // The same text with its borders elsewhere.
        binding(&other, "ealice", b"d"),
        binding(&acme, "aliced", b""),
    ] {
        assert!(matches!(ring.open(&stranger, &handle, 99), Err(SealError::Refused)), "{stranger:?}");
    }
}

#[test]
fn the_same_payload_never_gives_the_same_handle() {
    let ring = KeyRing::new(vec![[7; 32]]).unwrap();
    let acme = tenant("acme");
    let home = binding(&acme, "alice", b"");
    assert_ne!(ring.seal(&home, 100, b"p"), ring.seal(&home, 100, b"p"));
}

#[test]
fn keys_rotate() {
    let acme = tenant("acme");
    let home = binding(&acme, "alice", b"");
    let old = KeyRing::new(vec![[1; 32]]).unwrap();
    let both = KeyRing::new(vec![[2; 32], [1; 32]]).unwrap();
    let new = KeyRing::new(vec![[2; 32]]).unwrap();
    let handle = old.seal(&home, 9, b"p");
    assert!(both.open(&home, &handle, 0).is_ok());
    assert!(new.open(&home, &handle, 0).is_err());
    assert!(new.open(&home, &both.seal(&home, 9, b"p"), 0).is_ok());
}

#[test]
fn long_and_foreign_handles_are_refused() {
    let ring = KeyRing::new(vec![[7; 32]]).unwrap();
    let acme = tenant("acme");
    let home = binding(&acme, "alice", b"");
    let padded = format!("{}=", ring.seal(&home, 9, b"p"));
    for bad in ["", "AAAA", "not base64!", &padded, &"A".repeat(HANDLE_BYTES + 1), &"A".repeat(60)] {
        assert!(matches!(ring.open(&home, bad, 0), Err(SealError::Refused)));
    }
}

#[test]
fn nothing_shows_keys() {
    let ring = KeyRing::new(vec![[7; 32]]).unwrap();
    assert_eq!(format!("{ring:?}"), "KeyRing(1 keys)");
}

#[test]
fn the_ring_in_a_directory_is_made_once_and_kept_private() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("data");
    let acme = tenant("acme");
    let home = binding(&acme, "alice", b"");
    let handle = KeyRing::open_or_create(&directory).unwrap().seal(&home, 9, b"p");
    assert!(KeyRing::open_or_create(&directory).unwrap().open(&home, &handle, 0).is_ok());
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    let file = directory.join("keyring");
    assert_eq!(mode(&file), 0o600);
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1, "nothing else is left behind");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(KeyRing::open_or_create(&directory), Err(SealError::Exposed(_))));
}

#[test]
fn looking_finds_what_opening_would_and_makes_nothing() {
    let parent = tempfile::tempdir().unwrap();
    let set = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    KeyRing::look(&parent.path().join("a/b")).unwrap();
    assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    assert!(matches!(KeyRing::look(std::path::Path::new("/dev/null")), Err(SealError::File { .. })));
    // Whoever may do everything is not refused here either.
    set(parent.path(), 0o500);
    let possible = std::fs::write(parent.path().join("probe"), "").is_ok();
    assert_eq!(KeyRing::look(&parent.path().join("a/b")).is_ok(), possible);
    set(parent.path(), 0o700);

    let file = parent.path().join("keyring");
    for (text, mode, said) in [
        (&b""[..], 0o600, "there is no key in it"),
        (b"\xff\xfe", 0o600, "stream did not contain valid UTF-8"),
        (b"garbage", 0o600, "its line 1 is not 32 bytes in base64"),
        (b"QUJD", 0o600, "its line 1 is not 32 bytes in base64"),
        (b"", 0o644, "can be read by others; `chmod 600` it"),
    ] {
        std::fs::write(&file, text).unwrap();
        set(&file, mode);
        let looked = format!("{:#}", anyhow::Error::from(KeyRing::look(parent.path()).unwrap_err()));
        let opened = KeyRing::open_or_create(parent.path()).unwrap_err();
        assert_eq!(looked, format!("{:#}", anyhow::Error::from(opened)));
        assert!(looked.contains(&file.display().to_string()) && looked.ends_with(said), "{looked}");
    }
}

#[test]
fn the_text_form_names_the_bad_line() {
    assert!(matches!(KeyRing::parse("# nothing\n\n"), Err(SealError::Empty)));
    assert!(matches!(KeyRing::parse("# one\nQUJD\n"), Err(SealError::BadKey(2))));
    let key = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    assert!(KeyRing::parse(&format!(" {key} \n{key}")).is_ok());
}

proptest! {
    #[test]
    fn no_flipped_bit_goes_unseen(payload in any::<Vec<u8>>(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        use base64::Engine;
        use base64::engine::general_purpose::URL_SAFE_NO_PAD;
        let ring = KeyRing::new(vec![[7; 32]]).unwrap();
        let acme = tenant("acme");
        let home = binding(&acme, "alice", b"");
        let handle = ring.seal(&home, 9, &payload);
        prop_assert_eq!(&ring.open(&home, &handle, 0).unwrap(), &payload);
        let mut bytes = URL_SAFE_NO_PAD.decode(&handle).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(ring.open(&home, &URL_SAFE_NO_PAD.encode(bytes), 0).is_err());
    }
}
