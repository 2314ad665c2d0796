//! The last good catalogs, as files: a restart with a backend down still lists what it has.
//!
//! One file for each tenant, written beside the requests, a moment after something has changed. It
//! holds each backend's lists as they came and where they came from, and who owns which name. A file
//! that cannot be read is as good as none, and is set aside.

mod file;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::HashSet;
use std::fs;
use std::io;
use std::io::Read;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::sync::OnceCell;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::backend::listing::Listing;
use crate::catalog::owners::Owners;
use crate::catalog::part::Part;
use crate::catalog::snapshot::Snapshot;
use crate::catalog::stored::file::Composed;
use crate::catalog::stored::file::Content;
use crate::model::chance;
use crate::model::limits::Limits;
use crate::model::name::BackendName;
use crate::model::name::TenantName;
use crate::model::tenant;
use crate::model::tenant::Catalog;
use crate::model::tenant::Tenant;

/// The directory of the files, in `data_dir`.
const DIRECTORY: &str = "catalogs";

/// What the names of files end with: of one that is in use, of one that is being written, and of one that
/// could not be read.
const USED: &str = ".json";
const DRAFT: &str = ".draft";
const ASIDE: &str = ".unread";

/// How long after a change its file is written, so that many changes are written once.
const GAP: Duration = Duration::from_secs(2);

/// Where the files are. Clones are the same place.
#[derive(Clone, Default)]
pub(super) struct Shelf(Option<Arc<Inner>>);

struct Inner {
    directory: PathBuf,
    limits: Arc<Limits>,
    waiting: Mutex<Waiting>,
    wake: Notify,
    /// Whether the last file could not be written: that is said once.
    failing: AtomicBool,
}

/// What is to be written.
#[derive(Default)]
struct Waiting {
    pictures: HashMap<TenantName, Picture>,
    /// The tenants that there are, where that was told: others have no files.
    current: Option<HashSet<TenantName>>,
    untidy: bool,
}

/// What the file of a tenant has to say.
#[derive(Clone)]
pub(super) struct Picture {
    pub(super) backends: Vec<(Arc<tenant::Backend>, Arc<Listing>)>,
    pub(super) owners: Arc<Owners>,
}

impl Shelf {
    /// Files in `data_dir`. Nothing is made before there is something to write.
    pub(super) fn open(data_dir: &Path, limits: Arc<Limits>) -> Self {
        Self(Some(Arc::new(Inner {
            directory: data_dir.join(DIRECTORY),
            limits,
            waiting: Mutex::default(),
            wake: Notify::new(),
            failing: AtomicBool::new(false),
        })))
    }

    /// Tells which tenants there are: the files of others go.
    pub(super) fn retain(&self, tenants: &[Arc<Tenant>]) {
        let Some(inner) = &self.0 else { return };
        let mut waiting = inner.waiting();
        waiting.current = Some(tenants.iter().map(|tenant| tenant.name.clone()).collect());
        waiting.untidy = true;
        drop(waiting);
        inner.wake.notify_one();
    }

    /// Writes what there is to write, a moment after it has changed, and what is left once `stop` is
    /// cancelled.
    ///
    /// # Cancel safety
    /// Dropping the future loses what was not written yet.
    pub(super) async fn keep(self, stop: CancellationToken) {
        let Some(inner) = self.0 else { return };
        let this = inner.clone();
        let _ = tokio::task::spawn_blocking(move || this.remove_drafts()).await;
        loop {
            let woken = async {
                inner.wake.notified().await;
                sleep(GAP).await;
            };
            let go_on = stop.run_until_cancelled(woken).await.is_some();
            let this = inner.clone();
            if let Err(error) = tokio::task::spawn_blocking(move || this.write()).await {
                tracing::error!(%error, "the catalogs could not be stored");
            }
            if !go_on {
                return;
            }
        }
    }

    fn put(&self, tenant: &TenantName, picture: Picture) {
        let Some(inner) = &self.0 else { return };
        inner.waiting().pictures.insert(tenant.clone(), picture);
        inner.wake.notify_one();
    }

    /// What the tenant's file says. Without one, or with one that is not ours, nothing.
    async fn load(&self, tenant: &TenantName) -> Content {
        let Some(inner) = self.0.clone() else { return Content::default() };
        let name = tenant.clone();
        tokio::task::spawn_blocking(move || inner.load(&name)).await.unwrap_or_default()
    }
}

impl Inner {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, tenant: &TenantName) -> PathBuf {
        self.directory.join(format!("{tenant}{USED}"))
    }

    fn load(&self, tenant: &TenantName) -> Content {
        let path = self.path(tenant);
        let most = self.limits.catalog_file_bytes;
        let read = || -> Result<Option<Content>, String> {
            let file = match fs::File::open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                opened => opened.map_err(|error| error.to_string())?,
            };
            let mut bytes = Vec::new();
            file.take(most as u64 + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
            if bytes.len() > most {
                return Err(format!("it is larger than {most} bytes"));
            }
            file::read(Bytes::from(bytes), tenant, &self.limits).map(Some)
        };
        read()
            .unwrap_or_else(|reason| {
                tracing::warn!(%tenant, file = %path.display(), reason, "a stored catalog is not used and is set aside");
                self.set_aside(tenant);
                None
            })
            .unwrap_or_default()
    }

    /// Keeps a file that cannot be read from being overwritten by the next one; of a tenant, the last one.
    fn set_aside(&self, tenant: &TenantName) {
        let path = self.path(tenant);
        if let Err(error) = fs::rename(&path, self.directory.join(format!("{tenant}{ASIDE}"))) {
            tracing::warn!(%tenant, file = %path.display(), %error, "a stored catalog could not be set aside");
        }
    }

    fn write(&self) {
        let (pictures, current) = {
            let mut waiting = self.waiting();
            let untidy = std::mem::take(&mut waiting.untidy);
            let current = waiting.current.clone();
            let mut pictures = std::mem::take(&mut waiting.pictures);
            if let Some(current) = &current {
                pictures.retain(|tenant, _| current.contains(tenant));
            }
            (pictures, current.filter(|_| untidy))
        };
        for (tenant, picture) in pictures {
            let Composed { text, left_out, unowned } =
                file::compose(&tenant, &picture, self.limits.catalog_file_bytes);
            for backend in left_out {
                tracing::warn!(%tenant, %backend, "the lists of a backend are too large to be stored with the others");
            }
            for backend in unowned {
                tracing::warn!(%tenant, %backend, "the names of a backend are too many to be stored with the others");
            }
            let Some(text) = text else { continue };
            let path = self.path(&tenant);
            match self.replace(&path, &text) {
                Ok(()) => self.failing.store(false, Ordering::Relaxed),
                Err(error) if self.failing.swap(true, Ordering::Relaxed) => {
                    tracing::debug!(%tenant, %error, "a catalog could not be stored");
                }
                Err(error) => {
                    let file = path.display();
                    tracing::warn!(%tenant, %file, %error, "a catalog could not be stored: after a restart it is had anew");
                }
            }
        }
        if let Some(current) = current {
            self.tidy(&current);
        }
    }

    /// Whole and on the disk before it takes the name.
    fn replace(&self, path: &Path, text: &[u8]) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        let mut name = path.file_stem().unwrap_or_default().to_owned();
        name.push(format!(".{:016x}{DRAFT}", chance::word()));
        let draft = self.directory.join(name);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        let written =
            file.write_all(text).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&draft, path));
        if written.is_err() {
            let _ = fs::remove_file(&draft);
        }
        // So that it has the name after a crash, too.
        written.and_then(|()| fs::File::open(&self.directory)?.sync_all())
    }

    /// Removes what an earlier process had begun to write.
    fn remove_drafts(&self) {
        let Ok(entries) = fs::read_dir(&self.directory) else { return };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            if path.file_name().and_then(|name| name.to_str()).is_some_and(is_draft)
                && let Err(error) = fs::remove_file(&path)
            {
                tracing::warn!(file = %path.display(), %error, "a catalog that was begun could not be removed");
            }
        }
    }

    /// Removes the files of tenants that are gone.
    fn tidy(&self, current: &HashSet<TenantName>) {
        let Ok(entries) = fs::read_dir(&self.directory) else { return };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let name = path.file_name().and_then(|name| name.to_str());
            let name = name.and_then(|name| name.strip_suffix(USED).or_else(|| name.strip_suffix(ASIDE)));
            let Some(Ok(tenant)) = name.map(TenantName::new) else { continue };
            if !current.contains(&tenant)
                && let Err(error) = fs::remove_file(&path)
            {
                tracing::warn!(%tenant, file = %path.display(), %error, "the catalog of a tenant that is gone could not be removed");
            }
        }
    }
}

/// Whether a file of this name was never whole. Earlier versions numbered them.
fn is_draft(name: &str) -> bool {
    let tenant = name.rsplit_once(DRAFT).filter(|(_, behind)| {
        behind.strip_prefix('.').unwrap_or(behind).bytes().all(|byte| byte.is_ascii_digit())
    });
    tenant.is_some_and(|(named, _)| TenantName::new(named.split('.').next().unwrap_or_default()).is_ok())
}

/// What is stored of one tenant in one configuration.
pub(super) struct Record {
    shelf: Shelf,
    tenant: Arc<Tenant>,
    /// What its file said when it was first asked for.
    content: OnceCell<Mutex<Content>>,
    owners: Mutex<Arc<Owners>>,
    /// Whether the owners are those of an earlier configuration, which knew better than the file.
    inherited: bool,
}

impl Record {
    /// Of a tenant that had `earlier` in its last configuration.
    pub(super) fn new(shelf: Shelf, tenant: Arc<Tenant>, earlier: Option<&Record>) -> Self {
        let known = earlier.filter(|earlier| earlier.inherited || earlier.content.initialized());
        let owners = known.map(|earlier| Arc::new(earlier.owners().among(&tenant)));
        let inherited = owners.is_some();
        let owners = Mutex::new(owners.unwrap_or_default());
        Self { shelf, tenant, content: OnceCell::new(), owners, inherited }
    }

    /// The stored lists of a backend, if they came from where it is now. Who owns what is known from
    /// now on.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing that matters: the file is read again.
    pub(super) async fn begin(&self, config: &tenant::Backend) -> Option<Arc<Listing>> {
        let load = async {
            let mut content = self.shelf.load(&self.tenant.name).await;
            let owners = std::mem::take(&mut content.owners);
            if !self.inherited {
                *self.lock() = Arc::new(owners.among(&self.tenant));
            }
            // Those of another place are of no use to anybody, and those that all shared, to no single caller.
            let is_from = |one: &tenant::Backend, name: &BackendName, place: &str| {
                one.name == *name && one.catalog == Catalog::Shared && file::place(one) == *place
            };
            content
                .listings
                .retain(|name, (place, _)| self.tenant.backends.iter().any(|one| is_from(one, name, place)));
            Mutex::new(content)
        };
        self.content.get_or_init(|| load).await;
        self.stored()?.listings.get(&config.name).map(|(_, listing)| listing.clone())
    }

    /// Whether it is known what is stored: before that, nothing is.
    pub(super) fn has_begun(&self) -> bool {
        self.content.initialized() || self.tenant.backends.is_empty()
    }

    /// What was stored, once that is known.
    fn stored(&self) -> Option<MutexGuard<'_, Content>> {
        Some(self.content.get()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Who owns what.
    pub(super) fn owners(&self) -> Arc<Owners> {
        self.lock().clone()
    }

    /// Takes who owns what after a snapshot that is shown to clients.
    pub(super) fn settle(&self, parts: &[Arc<Part>], snapshot: &Snapshot, limits: &Limits) {
        let mut owners = self.lock();
        let now = owners.after(parts, snapshot, limits);
        *owners = Arc::new(now);
    }

    /// Has these lists stored, with those that are stored and were not taken over yet, and with who
    /// owns what.
    pub(super) fn put(&self, mut lists: HashMap<BackendName, Arc<Listing>>) {
        if let Some(mut stored) = self.stored() {
            stored.listings.retain(|name, _| !lists.contains_key(name));
            let waiting = stored.listings.iter();
            lists.extend(waiting.map(|(name, (_, listing))| (name.clone(), listing.clone())));
        }
        let backends = self.tenant.backends.iter();
        let backends = backends.filter_map(|config| Some((config.clone(), lists.remove(&config.name)?)));
        let picture = Picture { backends: backends.collect(), owners: self.owners() };
        self.shelf.put(&self.tenant.name, picture);
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Owners>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lists in a file by backend, each with the place that it came from.
type Listings = HashMap<BackendName, (String, Arc<Listing>)>;
