//! The text of one file.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use aws_lc_rs::digest;
use bytes::Bytes;

use crate::backend::listing::Listed;
use crate::backend::listing::Listing;
use crate::catalog::owners::Owners;
use crate::catalog::stored::Listings;
use crate::catalog::stored::Picture;
use crate::model::limits::Limits;
use crate::model::name::BackendName;
use crate::model::name::TenantName;
use crate::model::tenant::Backend;
use crate::model::tenant::BackendEra;
use crate::model::tenant::BackendKind;
use crate::model::tenant::CredentialPlace;
use crate::protocol::json::Json;
use crate::protocol::json::Kind;
use crate::protocol::json::compose::Array;
use crate::protocol::json::compose::Object;
use crate::protocol::methods::List;

/// What the text is, and which form it has. A file of another form is not read.
const FORM: &str = "fondaco catalog 1";

/// How many times deeper than a message the file may be: entries that are too deep are in it, too.
const DEPTHS: usize = 8;

/// Room for what is in every file.
const FRAME: usize = 128;

/// What a list is said to lack that was stored as incomplete.
const TRUNCATED: &str = "it was not complete when it was stored";

/// What a file says.
#[derive(Default)]
pub(super) struct Content {
    pub(super) listings: Listings,
    pub(super) owners: Owners,
}

/// A text, and what it has no room for.
#[derive(Default)]
pub(super) struct Composed {
    /// `None` where there is no room for anything.
    pub(super) text: Option<Vec<u8>>,
    /// The backends whose lists are not in it.
    pub(super) left_out: Vec<BackendName>,
    /// The backends of which it does not say what they own.
    pub(super) unowned: Vec<BackendName>,
}

/// The text for a tenant, of at most `most` bytes. Who owns what comes first, and of that, whoever owns
/// little.
pub(super) fn compose(tenant: &TenantName, picture: &Picture, most: usize) -> Composed {
    let head = Object::new().put_str("form", FORM).put_str("tenant", tenant.as_str());
    let mut composed = Composed::default();
    let mut room = most.saturating_sub(FRAME + tenant.as_str().len());
    let owners = owners(&picture.owners, &mut room, &mut composed.unowned);
    let mut backends = Object::new();
    for (config, listing) in &picture.backends {
        let one = backend(config, listing);
        match room.checked_sub(one.bytes().len() + config.name.as_str().len() + 8) {
            Some(left) => {
                room = left;
                backends = backends.put(config.name.as_str(), &one);
            }
            None => composed.left_out.push(config.name.clone()),
        }
    }
    let whole = head.put("owners", &owners).put("backends", &backends.finish()).finish();
    composed.text = Some(whole.bytes().to_vec()).filter(|text| text.len() <= most);
    composed
}

/// Reads the text of a tenant's file.
pub(super) fn read(text: Bytes, tenant: &TenantName, limits: &Limits) -> Result<Content, String> {
    let whole = Json::parse(text, DEPTHS * limits.json_depth).map_err(|error| error.to_string())?;
    if string(&whole, "form").as_deref() != Some(FORM) {
        return Err("it is no catalog of a form that is known".to_owned());
    }
    if string(&whole, "tenant").as_deref() != Some(tenant.as_str()) {
        return Err("it is another tenant's".to_owned());
    }
    let mut content = Content::default();
    for (name, one) in whole.member("backends").iter().flat_map(Json::members) {
        if let (Ok(name), Some(place)) = (BackendName::new(&name), string(&one, "place")) {
            content.listings.insert(name, (place, Arc::new(listing(&one))));
        }
    }
    let owners = whole.member("owners");
    for list in List::ALL {
        let of_list = owners.as_ref().and_then(|owners| owners.member(list.member()));
        for (owner, names) in of_list.iter().flat_map(Json::members) {
            let Ok(owner) = BackendName::new(&owner) else { continue };
            for name in names.elements().filter_map(|name| name.string()) {
                content.owners.insert(list, name.into(), owner.clone());
            }
        }
    }
    Ok(content)
}

/// Where a backend is and how it is asked, as a digest: its lists are another one's if that changes.
pub(super) fn place(config: &Backend) -> String {
    let credential = config.credential.as_ref();
    let (kind, url, era) = match &config.kind {
        BackendKind::Mcp { url, era } => (
            "mcp",
            url.as_str(),
            match era {
                BackendEra::Auto => "auto",
                BackendEra::Modern => "modern",
                BackendEra::Handshake => "legacy",
            },
        ),
        BackendKind::Demo => ("demo", "", ""),
    };
    let (header, secret) = match credential {
        None => ("", ""),
        Some(credential) => match &credential.place {
            CredentialPlace::Bearer => ("bearer", &*credential.secret),
            CredentialPlace::Header(name) => (&**name, &*credential.secret),
        },
    };
    let mut parts = String::new();
    for part in [config.name.as_str(), kind, url, era, header, secret] {
        // Into a string nothing fails.
        let _ = write!(parts, "{}:{part}", part.len());
    }
    let digest = digest::digest(&digest::SHA256, parts.as_bytes());
    digest.as_ref().iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn string(object: &Json, key: &str) -> Option<String> {
    object.member(key)?.string()
}

fn backend(config: &Backend, listing: &Listing) -> Json {
    let mut one = Object::new().put_str("place", &place(config));
    if let Some(instructions) = &listing.instructions {
        one = one.put_str("instructions", instructions);
    }
    if let Some(tasks) = listing.tasks {
        one = one.put_bool("tasks", tasks);
    }
    let extensions = listing.extensions.iter();
    let extensions = extensions.fold(Object::new(), |all, (name, value)| all.put(name, value));
    one = one.put("extensions", &extensions.finish());
    for list in List::ALL {
        match listing.of(list) {
            Listed::Unknown => {}
            Listed::Absent => one = one.put(list.member(), &Json::null()),
            Listed::Known { entries, truncated } => {
                let bytes = entries.iter().map(|entry| entry.bytes().len() + 1).sum::<usize>();
                let all = entries.iter().fold(Array::with_capacity(bytes + 2), |all, entry| all.push(entry));
                let known = Object::with_capacity(bytes + 64).put("entries", &all.finish());
                one = one.put(list.member(), &known.put_bool("truncated", truncated.is_some()).finish());
            }
        }
    }
    one.finish()
}

fn listing(one: &Json) -> Listing {
    let offered = one.member("extensions");
    let offered = offered.iter().flat_map(Json::members);
    let mut listing = Listing {
        instructions: string(one, "instructions"),
        tasks: one.member("tasks").and_then(|tasks| tasks.boolean()),
        extensions: offered.map(|(name, value)| (Arc::from(&*name), value.alone())).collect(),
        ..Listing::default()
    };
    for list in List::ALL {
        let Some(known) = one.member(list.member()) else { continue };
        *listing.of_mut(list) = match known.member("entries") {
            _ if known.kind() == Kind::Null => Listed::Absent,
            None => Listed::Unknown,
            Some(entries) => Listed::Known {
                entries: entries.elements().map(|entry| entry.alone()).collect(),
                truncated: (known.member("truncated").and_then(|cut| cut.boolean()) == Some(true))
                    .then_some(TRUNCATED),
            },
        };
    }
    listing
}

/// Who owns what, as far as there is `room`.
fn owners(owners: &Owners, room: &mut usize, unowned: &mut Vec<BackendName>) -> Json {
    let mut by_owner = BTreeMap::<&BackendName, BTreeMap<&str, Vec<&str>>>::new();
    for (list, name, owner) in owners.iter() {
        by_owner.entry(owner).or_default().entry(list.member()).or_default().push(name);
    }
    let owned = by_owner.into_iter().map(|(owner, lists)| {
        let lists = lists.into_iter().map(|(list, mut names)| {
            names.sort_unstable();
            (list, names.iter().fold(Array::new(), |names, name| names.push_str(name)).finish())
        });
        let lists: Vec<_> = lists.collect();
        let each =
            |(list, names): &(&str, Json)| names.bytes().len() + list.len() + owner.as_str().len() + 16;
        (lists.iter().map(each).sum::<usize>(), owner, lists)
    });
    let mut owned: Vec<_> = owned.collect();
    owned.sort_by_key(|(bytes, ..)| *bytes);
    let mut by_list = BTreeMap::<&str, Object>::new();
    for (bytes, owner, lists) in owned {
        let Some(left) = room.checked_sub(bytes) else {
            unowned.push(owner.clone());
            continue;
        };
        *room = left;
        for (list, names) in lists {
            let of_list = by_list.remove(list).unwrap_or_default();
            by_list.insert(list, of_list.put(owner.as_str(), &names));
        }
    }
    let all = by_list.into_iter().map(|(list, of_list)| (list, of_list.finish()));
    all.fold(Object::new(), |whole, (list, of_list)| whole.put(list, &of_list)).finish()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::Composed;
    use super::TRUNCATED;
    use super::compose;
    use super::place;
    use super::read;
    use crate::backend::listing::Listed;
    use crate::backend::listing::Listing;
    use crate::catalog::owners::Owners;
    use crate::catalog::stored::Picture;
    use crate::model::limits::Limits;
    use crate::model::name::BackendName;
    use crate::model::name::TenantName;
    use crate::model::tenant::Backend;
    use crate::model::tenant::BackendEra;
    use crate::model::tenant::BackendKind;
    use crate::model::tenant::Credential;
    use crate::model::tenant::CredentialPlace;
    use crate::model::tenant::SecretCell;
    use crate::model::tenant::Validate;
    use crate::protocol::json::Json;
    use crate::protocol::methods::List;

    fn backend(name: &str) -> Backend {
        Backend {
            kind: BackendKind::Mcp { url: "https://crm.example/mcp".parse().unwrap(), era: BackendEra::Auto },
            ..Backend::demo(name)
        }
    }

    fn entries(texts: &[&str]) -> Vec<Json> {
        texts.iter().map(|text| Json::parse(Bytes::from((*text).to_owned()), 100).unwrap()).collect()
    }

    fn listing() -> Listing {
        let tools = entries(&[r#"{"name":"a", "x":[1.50,1e400,"\u00e9"]}"#, "7"]);
        Listing {
            tools: Listed::whole(tools),
            prompts: Listed::Absent,
            resources: Listed::Known { entries: entries(&["{}"]), truncated: Some("it is long") },
            instructions: Some("Be \"kind\".".to_owned()),
            tasks: Some(true),
            extensions: vec![("com.example/search".into(), entries(&[r#"{"x":1e400}"#]).remove(0))],
            ..Listing::default()
        }
    }

    #[test]
    fn a_file_says_what_was_put_into_it() {
        let acme = TenantName::new("acme").unwrap();
        let mut owners = Owners::default();
        for (list, name, owner) in
            [(List::Tools, "a", "crm"), (List::Tools, "b", "wiki"), (List::Resources, "x://\"1\"", "crm")]
        {
            owners.insert(list, name.into(), BackendName::new(owner).unwrap());
        }
        let backends = ["crm", "wiki"].map(|name| (Arc::new(backend(name)), Arc::new(listing())));
        let picture = Picture { backends: backends.to_vec(), owners: Arc::new(owners.clone()) };
        let composed = compose(&acme, &picture, 10_000);
        assert!(composed.left_out.is_empty() && composed.unowned.is_empty());
        let text = composed.text.unwrap();
        let content = read(Bytes::from(text.clone()), &acme, &Limits::default()).unwrap();
        assert_eq!(content.owners, owners);
        for (config, before) in &picture.backends {
            let (from, after) = &content.listings[&config.name];
            assert_eq!(*from, place(config));
            assert_eq!((&after.tools, &after.prompts), (&before.tools, &Listed::Absent));
            assert_eq!((&after.templates, &after.instructions), (&Listed::Unknown, &before.instructions));
            assert_eq!(after.resources.entries(), before.resources.entries());
            assert_eq!((&after.tasks, &after.extensions), (&before.tasks, &before.extensions));
            assert_eq!(after.resources.truncated(), Some(TRUNCATED));
        }
        // Where there is no room for all, the first ones are in it, and whoever owns little: never more.
        for most in (0..text.len()).step_by(10) {
            let Composed { text, left_out, unowned } = compose(&acme, &picture, most);
            let Some(text) = text else {
                assert!(most < 128, "{most}");
                continue;
            };
            assert!(text.len() <= most, "{most}: {}", text.len());
            let content = read(Bytes::from(text), &acme, &Limits::default()).unwrap();
            assert_eq!(content.listings.len() + left_out.len(), 2);
            match unowned.iter().map(|name| name.as_str()).collect::<Vec<_>>()[..] {
                [] => assert_eq!(content.owners, owners),
                ["crm"] => assert_eq!(content.owners.of(List::Tools, "b").unwrap().as_str(), "wiki"),
                _ => assert_eq!((unowned.len(), content.owners), (2, Owners::default())),
            }
        }
        let other = TenantName::new("other").unwrap();
        assert!(read(Bytes::from(text), &other, &Limits::default()).is_err());
    }

    #[test]
    fn a_place_is_where_a_backend_is_and_how_it_is_asked() {
        let same = place(&backend("crm"));
        assert_eq!(place(&Backend { prefix: "x_".into(), validate: Validate::Off, ..backend("crm") }), same);
        let credential = |place, secret: &str| {
            let credential = Credential { place, secret: secret.into(), value: SecretCell::default() };
            Backend { credential: Some(credential), ..backend("crm") }
        };
        let mcp = |url: &str, era| BackendKind::Mcp { url: url.parse().unwrap(), era };
        let url = "https://crm.example/mcp";
        let others = [
            backend("wiki"),
            Backend { kind: BackendKind::Demo, ..backend("crm") },
            Backend { kind: mcp("https://crm.example/mcp2", BackendEra::Auto), ..backend("crm") },
            Backend { kind: mcp(url, BackendEra::Handshake), ..backend("crm") },
            credential(CredentialPlace::Bearer, "a"),
            credential(CredentialPlace::Bearer, "b"),
            credential(CredentialPlace::Header("x-key".into()), "a"),
        ];
        let mut places: Vec<_> = others.iter().map(place).chain([same]).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 8);
    }
}
