//! What the catalog has, whatever it is: a name for clients, a name for its backend, what lists show.

use std::fmt;
use std::sync::Arc;

use crate::backend::Backend;
use crate::catalog::template::Pattern;
use crate::catalog::template::Steps;
use crate::catalog::ui::Host;
use crate::catalog::ui::Ui;
use crate::catalog::uris;
use crate::model::name::BackendName;
use crate::model::scope::Scopes;
use crate::model::tenant;
use crate::model::tenant::ObjectKind;
use crate::model::uri;
use crate::model::uri::Reading;
use crate::policy::Target;
use crate::policy::scope;
use crate::protocol::json::Json;
use crate::protocol::methods::List;

/// A backend, as its entries know it.
#[derive(Clone)]
pub struct Home {
    /// As the tenant configured it.
    pub config: Arc<tenant::Backend>,
    /// To ask it.
    pub live: Arc<Backend>,
    /// Whether it said, when it was listed, that it may answer a call with a task.
    pub tasks: bool,
}

/// A tool, a prompt, a resource or a resource template. Never changes.
pub struct Entry {
    /// What it is.
    pub kind: ObjectKind,
    /// The name or URI that clients know it by.
    pub public: Arc<str>,
    /// The backend's own.
    pub own: Arc<str>,
    /// Its backend.
    pub home: Arc<Home>,
    /// What lists show: the backend's members as they came, under the public name, with texts for
    /// people cleaned. `null` for a resource that no list shows.
    pub descriptor: Json,
    /// The scopes that it needs.
    pub needs: Scopes,
    /// What it has to do with views.
    pub ui: Ui,
}

impl Entry {
    /// A resource that its backend does not list.
    pub fn unlisted(home: &Arc<Home>, public: &str, own: &str, needs: Scopes) -> Self {
        Self {
            kind: ObjectKind::Resource,
            public: public.into(),
            own: own.into(),
            home: home.clone(),
            descriptor: Json::null(),
            needs,
            ui: Ui::of(ObjectKind::Resource, own, &Json::null()),
        }
    }

    /// A task that goes on at its backend, known by these ids. It needs what the tool needs that made it.
    pub fn task(home: &Arc<Home>, public: &str, own: &str, needs: Scopes) -> Self {
        Self { kind: ObjectKind::Tool, ..Self::unlisted(home, public, own, needs) }
    }

    /// Its backend's name.
    pub fn backend(&self) -> &BackendName {
        &self.home.config.name
    }

    /// Whether some list shows it.
    pub fn is_listed(&self) -> bool {
        self.descriptor.is_object()
    }

    /// What lists show of it to this host; `None` where they do not show it.
    pub fn shown(&self, host: Host) -> Option<&Json> {
        match (&self.ui, host) {
            (Ui::View, Host::Plain) => None,
            (Ui::Tool(plain), Host::Plain) => Some(plain),
            (Ui::None | Ui::Tool(_) | Ui::View, _) => Some(&self.descriptor),
        }
    }

    /// It as a decision's target.
    pub fn target(&self) -> Target<'_> {
        Target { backend: self.backend(), kind: self.kind, own_name: &self.own, needs: &self.needs }
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({} = {} of {})", self.kind, self.public, self.own, self.backend())
    }
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Home({})", self.config.name)
    }
}

/// A prompt that was admitted.
#[derive(Debug)]
pub struct Prompt {
    /// What it has in common with everything else.
    pub entry: Arc<Entry>,
    /// The arguments that it does not go without.
    pub required: Vec<Arc<str>>,
}

/// A resource template that was admitted.
#[derive(Debug)]
pub struct Template {
    /// What it has in common with everything else.
    pub entry: Arc<Entry>,
    /// The own URIs that it may become.
    pub pattern: Pattern,
    /// The same in both readings of a URI, in the order of [`Reading::ALL`]. `None` where the template is
    /// not plain: then it may have made anything.
    readings: Option<[Pattern; 2]>,
}

impl Template {
    /// A template of this entry.
    pub fn new(entry: Arc<Entry>, pattern: Pattern) -> Self {
        let readings = uri::is_plain(&pattern.example())
            .then(|| Reading::ALL.map(|reading| pattern.map(|literal| reading.of(literal))));
        Self { entry, pattern, readings }
    }

    /// Whether it may have become a URI of these forms, which are those of each of [`Reading::ALL`];
    /// `None` if that took too many steps.
    pub fn may_have_made(&self, forms: &[Vec<String>; 2], steps: &mut Steps) -> Option<bool> {
        let Some(readings) = &self.readings else { return Some(true) };
        for (pattern, forms) in readings.iter().zip(forms) {
            for form in forms {
                if pattern.matches(form, steps)? {
                    return Some(true);
                }
            }
        }
        Some(false)
    }
}

/// Something of the catalog that has an entry.
pub trait Cataloged {
    /// Its entry.
    fn entry(&self) -> &Arc<Entry>;
}

impl Cataloged for Arc<Entry> {
    fn entry(&self) -> &Arc<Entry> {
        self
    }
}

impl Cataloged for Arc<Prompt> {
    fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }
}

impl Cataloged for Arc<Template> {
    fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }
}

/// What something of this kind and own name needs.
pub(super) fn needed(config: &tenant::Backend, kind: ObjectKind, own: &str) -> Scopes {
    match kind {
        ObjectKind::Resource => uris::needed(config, own),
        ObjectKind::Tool | ObjectKind::Prompt => scope::needed(config, kind, own),
    }
}

/// An entry that is not in the catalog, or that is in it changed, and why.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Remark {
    /// Its backend.
    pub backend: BackendName,
    /// The list that it is from.
    pub list: List,
    /// Its own name, escaped and cut, or its place in the list where it has no name.
    pub name: String,
    /// Why, to be read by the tenant's operators.
    pub reason: String,
}
