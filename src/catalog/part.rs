//! What one backend puts into a snapshot.

use std::sync::Arc;

use crate::backend::listing::Listed;
use crate::backend::listing::Listing;
use crate::catalog::admission;
use crate::catalog::admission::Admission;
use crate::catalog::entry::Cataloged;
use crate::catalog::entry::Home;
use crate::model::limits::Limits;
use crate::protocol::json::Json;
use crate::protocol::methods::List;

/// What one backend puts into a snapshot.
#[derive(Debug)]
pub struct Part {
    /// The backend.
    pub home: Arc<Home>,
    /// What of its lists was taken.
    pub admission: Admission,
    /// Its own instructions.
    pub instructions: Option<String>,
    /// What it says of the extensions that it may offer.
    pub extensions: Vec<(Arc<str>, Json)>,
    /// Whether it has resources to read, listed or not.
    pub has_resources: bool,
    /// Whether each of its lists was had at least once.
    pub complete: bool,
    /// The lists of which it is known what is not in them.
    whole: Vec<List>,
}

impl Part {
    /// Judges what a backend lists. Compiles schemas: belongs on a blocking thread.
    pub fn of(home: &Arc<Home>, listing: &Listing, limits: &Limits) -> Self {
        let tasks = listing.tasks == Some(true);
        let home = match home.tasks == tasks {
            true => home.clone(),
            false => Arc::new(Home { tasks, ..Home::clone(home) }),
        };
        let allowed = |(name, _): &&(Arc<str>, Json)| home.config.extensions.contains(name);
        Self {
            admission: admission::admit(&home, limits, listing),
            instructions: listing.instructions.clone(),
            extensions: listing.extensions.iter().filter(allowed).cloned().collect(),
            home,
            has_resources: [List::Resources, List::Templates].iter().any(|list| listing.of(*list).is_known()),
            complete: listing.is_complete(),
            whole: List::ALL.into_iter().filter(|list| is_whole(listing, *list)).collect(),
        }
    }

    /// Whether it is known what is not in a list of it.
    pub(super) fn is_whole(&self, list: List) -> bool {
        self.whole.contains(&list)
    }

    /// The public names in one list, also of what was not taken.
    pub(super) fn names(&self, list: List) -> Box<dyn Iterator<Item = &Arc<str>> + '_> {
        fn public<T: Cataloged>(taken: &T) -> &Arc<str> {
            &taken.entry().public
        }
        let withheld = self.admission.withheld.iter();
        let withheld = withheld.filter(move |(of, _)| *of == list).map(|(_, name)| name);
        match list {
            List::Tools => Box::new(self.admission.tools.iter().map(public).chain(withheld)),
            List::Prompts => Box::new(self.admission.prompts.iter().map(public).chain(withheld)),
            List::Resources => Box::new(self.admission.resources.iter().map(public).chain(withheld)),
            List::Templates => Box::new(self.admission.templates.iter().map(public).chain(withheld)),
        }
    }
}

/// Whether it is known what is not in a list. Who is away for long gives nothing up.
fn is_whole(listing: &Listing, list: List) -> bool {
    match listing.of(list) {
        Listed::Unknown => false,
        Listed::Absent => !listing.is_gone(),
        Listed::Known { truncated, .. } => truncated.is_none(),
    }
}
