//! A database of each test's own, in either engine.
//!
//! ```ignore
//! let database = Database::postgres().await;      // or `sqlite()`
//! let store = database.open().await;              // a second one is another replica's
//! database.sql("delete from audit").await;        // past the store, as whoever owns the database
//! database.variables();                           // for `fondaco serve`
//! ```
//!
//! PostgreSQL is where FONDACO_TEST_PG says (scripts/postgres). There the store is opened as a role
//! that is neither superuser nor owner of anything; migrations are another's.

use std::path::Path;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use fondaco::config::database::PostgresUrl;
use fondaco::model::clock::Clock;
use fondaco::model::limits::Limits;
use fondaco::seal::KeyRing;
use fondaco::store::Store;
use secrecy::SecretString;
use sqlx::ConnectOptions;
use sqlx::Connection;
use sqlx::PgConnection;
use sqlx::Row;
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use tokio::io::copy_bidirectional;
use tokio::net::TcpListener;
use tokio::net::TcpStream;
use tokio::net::UnixStream;
use tokio::sync::watch;

/// Who owns the schema, and who serves.
const OWNER: &str = "fondaco_test_owner";
const SERVE: &str = "fondaco_test_serve";

/// The key ring of every test, as the configuration has it.
pub const KEY: &str = "q83vASNFZ4mrze8BI0VniavN7wEjRWeJq83vEjRWeJo=";

/// A database.
pub struct Database {
    /// Where its files are; of PostgreSQL none.
    pub dir: tempfile::TempDir,
    /// Its clock, which the test may move.
    pub clock: Clock,
    /// The limits of stores that are opened from now on.
    pub limits: Limits,
    server: Option<Server>,
}

struct Server {
    root: PgConnectOptions,
    name: String,
}

impl Database {
    /// One of SQLite.
    pub async fn sqlite() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            clock: Clock::default(),
            limits: Limits::default(),
            server: None,
        }
    }

    /// One of PostgreSQL, migrated.
    pub async fn postgres() -> Self {
        let database = Self::empty().await;
        Store::migrate(&database.url(OWNER), Some(SERVE)).await.unwrap();
        database
    }

    /// One of PostgreSQL with nothing in it.
    pub async fn empty() -> Self {
        let named = std::env::var("FONDACO_TEST_PG");
        let url = named.unwrap_or_else(|_| "postgres://postgres@127.0.0.1:5432/postgres".to_owned());
        let root = PgConnectOptions::from_str(&url).unwrap().disable_statement_logging();
        let mut connection = PgConnection::connect_with(&root)
            .await
            .unwrap_or_else(|error| panic!("there is no PostgreSQL at {url}: run scripts/postgres: {error}"));
        for role in [OWNER, SERVE] {
            let sql = format!("create role {role} login nosuperuser nocreatedb nocreaterole nobypassrls");
            // Other tests make it at the same time.
            let _ = sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut connection).await;
        }
        let name = format!("fondaco_test_{}", u64::from_be_bytes(fondaco::seal::random::<8>()));
        let sql = format!("create database {name} owner {OWNER}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
        Self { server: Some(Server { root, name }), ..Self::sqlite().await }
    }

    /// The database's URL as its owner has it.
    pub fn owner(&self) -> PostgresUrl {
        self.url(OWNER)
    }

    /// The database's URL as those who serve have it.
    pub fn serve(&self) -> PostgresUrl {
        self.url(SERVE)
    }

    fn url(&self, user: &str) -> PostgresUrl {
        PostgresUrl { url: SecretString::from(self.text(user)), password: None }
    }

    fn text(&self, user: &str) -> String {
        let Server { root, name } = self.server.as_ref().expect("SQLite has no URL");
        let (host, port) = (root.get_host(), root.get_port());
        if host.starts_with('/') || root.get_socket().is_some() {
            let socket = root.get_socket().map_or(Path::new(host), PathBuf::as_path).display();
            return format!("postgres:///{name}?host={socket}&port={port}&user={user}");
        }
        format!("postgres://{user}@{host}:{port}/{name}")
    }

    /// The same URL through `port` of this machine.
    pub fn through(&self, port: u16) -> String {
        let name = &self.server.as_ref().expect("SQLite has no URL").name;
        format!("postgres://{SERVE}@127.0.0.1:{port}/{name}")
    }

    fn place(&self) -> Place {
        let root = &self.server.as_ref().expect("SQLite has no server").root;
        let name = format!(".s.PGSQL.{}", root.get_port());
        match (root.get_socket(), root.get_host()) {
            (Some(socket), _) => Place::Socket(socket.join(name)),
            (None, host) if host.starts_with('/') => Place::Socket(Path::new(host).join(name)),
            (None, host) => Place::Tcp(format!("{host}:{}", root.get_port())),
        }
    }

    /// A store on it, with the key ring of every test.
    pub async fn open(&self) -> Store {
        self.open_with(KEY).await
    }

    /// A store on it, with another key ring.
    pub async fn open_with(&self, ring: &str) -> Store {
        let (keys, limits) = (Arc::new(KeyRing::parse(ring).unwrap()), Arc::new(self.limits.clone()));
        match &self.server {
            Some(_) => Store::server(&self.serve(), keys, self.clock.clone(), limits).unwrap(),
            None => Store::embedded(self.dir.path(), keys, self.clock.clone(), limits).await.unwrap(),
        }
    }

    /// A store on a server at this URL.
    pub fn open_at(&self, url: &str) -> Store {
        let (keys, limits) = (Arc::new(KeyRing::parse(KEY).unwrap()), Arc::new(self.limits.clone()));
        let url = PostgresUrl { url: SecretString::from(url), password: None };
        Store::server(&url, keys, self.clock.clone(), limits).unwrap()
    }

    /// Where another process finds it: `file:` and a directory, or a URL.
    pub fn writer(&self) -> String {
        match &self.server {
            Some(_) => self.text(SERVE),
            None => format!("file:{}", self.dir.path().display()),
        }
    }

    /// What makes `fondaco` use it.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let mut variables = vec![("FONDACO_KEYS__RING", "[{env = \"RING\"}]".to_owned())];
        variables.push(("RING", KEY.to_owned()));
        match &self.server {
            Some(_) => variables.push(("FONDACO_DATABASE__URL", self.text(SERVE))),
            None => variables.push(("FONDACO_DATA_DIR", self.dir.path().display().to_string())),
        }
        variables
    }

    /// What makes `fondaco migrate` use it, as who owns the schema.
    pub fn owner_variables(&self) -> [(&'static str, String); 1] {
        [("FONDACO_DATABASE__URL", self.text(OWNER))]
    }

    /// Runs statements past the store, and past row-level security.
    pub async fn sql(&self, sql: &str) {
        let sql = sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned()));
        match &self.server {
            Some(server) => {
                let mut connection = self.root(server).await;
                sql.execute(&mut connection).await.unwrap();
            }
            None => {
                let mut connection = self.file().connect().await.unwrap();
                sql.execute(&mut connection).await.unwrap();
            }
        }
    }

    /// What a statement counts, past the store.
    pub async fn count(&self, sql: &str) -> i64 {
        let sql = sqlx::AssertSqlSafe(sql.to_owned());
        match &self.server {
            Some(server) => {
                let mut connection = self.root(server).await;
                sqlx::query(sql).fetch_one(&mut connection).await.unwrap().get(0)
            }
            None => {
                let mut connection = self.file().connect().await.unwrap();
                sqlx::query(sql).fetch_one(&mut connection).await.unwrap().get(0)
            }
        }
    }

    /// Everything that is in the database, as text: of PostgreSQL every row, of SQLite every byte.
    pub async fn everything(&self) -> Vec<u8> {
        let Some(server) = &self.server else {
            let files = std::fs::read_dir(self.dir.path()).unwrap();
            return files.flat_map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
        };
        let mut connection = self.root(server).await;
        let mut text = String::new();
        for table in ["tenants", "issuers", "claims", "backends", "secrets", "operators", "audit", "answers"]
        {
            let sql = sqlx::AssertSqlSafe(format!("select t::text from {table} t"));
            let rows = sqlx::query(sql).fetch_all(&mut connection).await.unwrap();
            rows.iter().for_each(|row| text.push_str(row.get(0)));
        }
        text.into_bytes()
    }

    /// A connection of the role that serves.
    pub async fn as_serve(&self) -> PgConnection {
        let options = PgConnectOptions::from_str(&self.text(SERVE)).unwrap().disable_statement_logging();
        PgConnection::connect_with(&options).await.unwrap()
    }

    async fn root(&self, server: &Server) -> PgConnection {
        PgConnection::connect_with(&server.root.clone().database(&server.name)).await.unwrap()
    }

    fn file(&self) -> SqliteConnectOptions {
        SqliteConnectOptions::new().filename(self.dir.path().join("fondaco.db")).disable_statement_logging()
    }
}

/// Where a server listens.
#[derive(Clone)]
enum Place {
    /// On a socket in the file system.
    Socket(PathBuf),
    /// On an address.
    Tcp(String),
}

/// A way to the server that can be cut, as if the server went away.
pub struct Outage {
    port: u16,
    state: watch::Sender<Way>,
}

/// How the way is.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Open,
    Closed,
    Silent,
}

impl Outage {
    /// An open way.
    pub async fn of(database: &Database) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (state, place) = (watch::Sender::new(Way::Open), database.place());
        let mut changes = state.subscribe();
        tokio::spawn(async move {
            let mut listener = Some(listener);
            loop {
                let way = *changes.borrow_and_update();
                if way == Way::Closed {
                    // Nobody listens: connections are refused.
                    listener = None;
                    if changes.changed().await.is_err() {
                        return;
                    }
                    continue;
                }
                if listener.is_none() {
                    listener = TcpListener::bind(("127.0.0.1", port)).await.ok();
                }
                let Some(listening) = &listener else { continue };
                tokio::select! {
                    changed = changes.changed() => if changed.is_err() { return },
                    accepted = listening.accept() => {
                        let Ok((stream, _)) = accepted else { continue };
                        tokio::spawn(carry(stream, place.clone(), changes.clone()));
                    }
                }
            }
        });
        Self { port, state }
    }

    /// Where the way begins.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Cuts every connection, and refuses new ones.
    pub fn begin(&self) {
        self.state.send_replace(Way::Closed);
    }

    /// Keeps connections, and says nothing any more on any.
    pub fn silence(&self) {
        self.state.send_replace(Way::Silent);
    }

    /// All is well again. What was silent is cut.
    pub fn end(&self) {
        self.state.send_replace(Way::Open);
    }
}

/// Carries one connection for as long as the way is what it was; a silent one, until it is open.
async fn carry(mut stream: TcpStream, place: Place, mut changes: watch::Receiver<Way>) {
    let way = *changes.borrow_and_update();
    let carrying = async {
        match &place {
            _ if way == Way::Silent => std::future::pending().await,
            Place::Socket(path) => {
                let mut server = UnixStream::connect(path).await.unwrap();
                let _ = copy_bidirectional(&mut stream, &mut server).await;
            }
            Place::Tcp(address) => {
                let mut server = TcpStream::connect(address).await.unwrap();
                let _ = copy_bidirectional(&mut stream, &mut server).await;
            }
        }
    };
    tokio::select! {
        () = carrying => return,
        _ = changes.changed() => {}
    }
    if *changes.borrow_and_update() == Way::Silent {
        let _ = changes.changed().await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let (root, name) = (self.root.clone(), self.name.clone());
        // The test's own runtime is on its way out.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let Ok(mut connection) = PgConnection::connect_with(&root).await else { return };
                let sql = sqlx::AssertSqlSafe(format!("drop database if exists {name} with (force)"));
                // What stays behind is in nobody's way.
                let _ = sqlx::raw_sql(sql).execute(&mut connection).await;
            });
        });
        let _ = dropping.join();
    }
}
