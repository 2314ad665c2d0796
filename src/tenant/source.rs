//! The tenants of a running process: read from their file, and read again whenever it changes.

use std::hash::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;
use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::config::Settings;
use crate::config::public::PublicUrls;
use crate::config::report::Problem;
use crate::config::report::Report;
use crate::tenant::file::Loaded;
use crate::tenant::file::Loader;
use crate::tenant::index::Directory;
use crate::tenant::secret::Secrets;

/// Looks up an environment variable.
pub type Environment = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The longest tenants file that is read.
const LONGEST: u64 = 64 << 20;

/// As many links as the system follows.
const MOST_LINKS: usize = 40;

/// Where tenants come from.
#[derive(Clone)]
pub struct Sources {
    /// The URLs that the deployment is reached under.
    pub public: PublicUrls,
    /// A tenants file's text that lies under the file.
    pub built_in: Option<String>,
    /// The tenants file.
    pub file: Option<PathBuf>,
    /// Where `{env: NAME}` secrets are.
    pub env: Environment,
    /// Where the gateway keeps its own keys: no tenant's secret may come from there.
    pub own_dir: Option<PathBuf>,
}

/// The tenants of this process, always the last good ones.
pub struct Tenants {
    sources: Sources,
    current: ArcSwap<Directory>,
    failures: AtomicU64,
    changes: watch::Sender<()>,
    loaded: watch::Sender<bool>,
    /// What the next reload needs; held while one runs, so that they never overlap.
    state: Mutex<State>,
}

struct State {
    /// Of the file's bytes that were read last, good or not.
    seen: u64,
    secrets: Secrets,
    /// Why it was not good, if it was not.
    refused: Option<Report>,
}

/// What a reload found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// The file is what it was, good or not. Secrets were read again.
    Unchanged,
    /// New tenants are in place.
    Swapped,
    /// The file is broken; nothing changed.
    Refused,
}

impl Sources {
    /// The sources that `settings` name, with the process's environment.
    pub fn of(settings: &Settings) -> Self {
        Self {
            public: settings.public_urls(),
            built_in: None,
            file: settings.tenants.clone(),
            env: Arc::new(|name| std::env::var(name).ok()),
            own_dir: Some(settings.data_dir.clone()),
        }
    }

    /// Reads everything. Secrets that are `known` stay what they are.
    pub fn load(&self, known: &Secrets) -> Result<Loaded, Report> {
        self.parse(self.text(), known)
    }

    /// A loader for this deployment.
    pub fn loader<'l>(&'l self, known: &'l Secrets) -> Loader<'l> {
        Loader::new(&self.public, &self.env, known, self.own_dir.as_deref())
    }

    fn text(&self) -> Option<io::Result<String>> {
        self.file.as_deref().map(read)
    }

    fn parse(&self, text: Option<io::Result<String>>, known: &Secrets) -> Result<Loaded, Report> {
        let mut loader = self.loader(known);
        if let Some(built_in) = &self.built_in {
            loader.layer(built_in, "built-in tenants");
        }
        if let (Some(path), Some(text)) = (&self.file, text) {
            let source = path.display().to_string();
            match text {
                Ok(text) => loader.layer(&text, &source),
                Err(error) => loader.unreadable(&source, &error),
            }
        }
        loader.finish()
    }
}

impl Tenants {
    /// Reads the tenants, or says everything that is wrong with them.
    pub fn open(sources: Sources) -> Result<Self, Report> {
        let text = sources.text();
        let seen = hash(text.as_ref());
        let mut loaded = sources.parse(text, &Secrets::default())?;
        log_warnings(&loaded.warnings);
        let secrets = std::mem::take(&mut loaded.secrets);
        let directory = Directory::build(&sources.public, loaded, 1);
        Ok(Self {
            sources,
            current: ArcSwap::from_pointee(directory),
            failures: AtomicU64::new(0),
            changes: watch::Sender::new(()),
            loaded: watch::Sender::new(true),
            state: Mutex::new(State { seen, secrets, refused: None }),
        })
    }

    /// No tenants yet: what serves them is to come ([`Tenants::follow`]).
    pub fn none(sources: Sources) -> Self {
        let directory = Directory::build(&sources.public, Loaded::default(), 1);
        Self {
            sources,
            current: ArcSwap::from_pointee(directory),
            failures: AtomicU64::new(0),
            changes: watch::Sender::new(()),
            loaded: watch::Sender::new(false),
            state: Mutex::new(State { seen: 0, secrets: Secrets::default(), refused: None }),
        }
    }

    /// Returns when the tenants were read once.
    pub async fn loaded(&self) {
        // It is never closed while this is.
        let _ = self.loaded.subscribe().wait_for(|loaded| *loaded).await;
    }

    /// Where they come from.
    pub(super) fn sources(&self) -> &Sources {
        &self.sources
    }

    /// The directory now.
    pub fn current(&self) -> Arc<Directory> {
        self.current.load_full()
    }

    /// Tells about each new directory, once it is in place.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// How often a changed file was refused since the start.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Reads everything again, and swaps the directory if the file says something new that loads.
    /// Blocks on files.
    pub fn reload(&self) -> Reload {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.secrets.reread(&self.sources.env);
        let text = self.sources.text();
        let seen = hash(text.as_ref());
        if std::mem::replace(&mut state.seen, seen) == seen && state.refused.is_none() {
            return Reload::Unchanged;
        }
        match self.sources.parse(text, &state.secrets) {
            Ok(loaded) => {
                self.install(loaded, &mut state);
                Reload::Swapped
            }
            Err(report) if state.refused.as_ref() == Some(&report) => Reload::Unchanged,
            Err(report) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                tracing::error!("the tenants stay what they were, since their file does not load:\n{report}");
                state.refused = Some(report);
                Reload::Refused
            }
        }
    }

    /// Whether the file as it is now does not load.
    pub fn is_refused(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).refused.is_some()
    }

    /// The directories that hold what is watched. A file may be replaced by a rename, its own or
    /// that of a link on the way to it, which is seen in its directory alone.
    pub(super) fn directories(&self) -> Vec<PathBuf> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let files = self.sources.file.iter().chain(state.secrets.files());
        let mut directories: Vec<PathBuf> = files.flat_map(|file| directories(file)).collect();
        directories.sort();
        directories.dedup();
        directories
    }

    fn install(&self, mut loaded: Loaded, state: &mut State) {
        state.secrets = std::mem::take(&mut loaded.secrets);
        state.refused = None;
        self.swap(loaded);
    }

    /// Puts these tenants in place.
    pub(super) fn swap(&self, mut loaded: Loaded) {
        log_warnings(&loaded.warnings);
        let old = self.current.load();
        for entry in &mut loaded.tenants {
            // The same value, so that whatever was compiled for it is still for it.
            let same = old.tenant(&entry.tenant.name).filter(|tenant| tenant.digest == entry.tenant.digest);
            entry.tenant = same.unwrap_or_else(|| Arc::clone(&entry.tenant));
        }
        let tenants = loaded.tenants.len();
        let directory = Directory::build(&self.sources.public, loaded, old.revision() + 1);
        self.current.store(Arc::new(directory));
        self.loaded.send_replace(true);
        self.changes.send_replace(());
        tracing::info!(tenants, "the tenants were read again");
    }
}

/// The directory of every link on the way to `file`, and of what it leads to in the end.
fn directories(file: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut path = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    while let Some((link, target)) = first_link(&path).filter(|_| found.len() < MOST_LINKS) {
        let Some(directory) = link.parent() else { break };
        let rest = path.strip_prefix(&link).unwrap_or(Path::new(""));
        let target = if rest.as_os_str().is_empty() { target } else { target.join(rest) };
        found.push(directory.to_owned());
        path = directory.join(target);
    }
    found.extend(path.parent().map(Path::to_owned));
    found
}

/// The first part of `path` that is a link, and what it says.
fn first_link(path: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut parts: Vec<&Path> = path.ancestors().collect();
    parts.reverse();
    parts.into_iter().find_map(|part| Some((part.to_owned(), std::fs::read_link(part).ok()?)))
}

fn read(path: &Path) -> io::Result<String> {
    let file = std::fs::metadata(path)?;
    if !file.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    if file.len() > LONGEST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "longer than 64MiB"));
    }
    std::fs::read_to_string(path)
}

/// Of the content, or of the reason why there is none: each is told once.
fn hash(text: Option<&io::Result<String>>) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.map(|text| text.as_ref().map_err(io::Error::kind)).hash(&mut hasher);
    hasher.finish()
}

fn log_warnings(warnings: &[Problem]) {
    for warning in warnings {
        tracing::warn!("{warning}");
    }
}
