//! A tenants file as the documents that the database keeps, for who brings it there.

use secrecy::SecretString;
use serde_json::Map;
use serde_json::Value as Json;
use url::Url;

use crate::config::node::Field;
use crate::config::node::Node;
use crate::config::node::Value;
use crate::config::public::PublicUrls;
use crate::config::report::Problem;
use crate::config::report::Report;
use crate::model::name::TenantName;
use crate::tenant::file::Loader;
use crate::tenant::secret::Secrets;
use crate::tenant::source::Environment;
use crate::tenant::yaml;

/// What stands for the URL of the deployment, which only the deployment knows.
const ELSEWHERE: &str = "https://fondaco.invalid";

/// What a file says.
pub struct Parts {
    /// The URL and the document of each shared issuer.
    pub issuers: Vec<(String, Json)>,
    /// The tenants, in the file's order.
    pub tenants: Vec<Part>,
    /// What is allowed and probably not meant.
    pub warnings: Vec<Problem>,
}

/// A tenant with all that is its own.
pub struct Part {
    /// Its name.
    pub name: TenantName,
    /// Its own document.
    pub document: Json,
    /// Name and value of each secret, which is read from where the file says.
    pub secrets: Vec<(String, SecretString)>,
    /// Name and document of each backend, in the file's order.
    pub backends: Vec<(String, Json)>,
}

/// Reads a file's text, or says everything that is wrong with it; `source` is its name in messages.
/// Only the deployment itself can tell more: what is claimed by others there.
pub fn cut(text: &str, source: &str, env: &Environment) -> Result<Parts, Report> {
    let primary = Url::parse(ELSEWHERE).expect("a constant URL is well-formed");
    let public = PublicUrls { primary, aliases: Vec::new(), origins: Vec::new() };
    let known = Secrets::default();
    let mut loader = Loader::new(&public, env, &known, None);
    loader.layer(text, source);
    let loaded = loader.finish()?;
    let root = yaml::parse(text, source).map_err(|problem| Report(vec![problem]))?;
    let issuers = match member(&root, "issuers").map(|node| &node.value) {
        Some(Value::List(items)) => items.iter().map(json).collect(),
        _ => Vec::new(),
    };
    let issuers = loaded.shared.iter().map(|shared| shared.issuer.url.to_string()).zip(issuers).collect();
    let tenants = loaded.tenants.iter().map(|entry| {
        let name = entry.tenant.name.clone();
        let node = member(&root, "tenants").and_then(|tenants| member(tenants, name.as_str()));
        let secrets = loaded
            .secrets
            .of(&name)
            .iter()
            .filter_map(|secret| Some((secret.name.clone(), secret.cell.get()?.value.clone())));
        let own = |field: &&Field| field.key != "secrets" && field.key != "backends";
        let document = fields(node).iter().filter(own).map(entry_of).collect();
        let backends = fields(node.and_then(|node| member(node, "backends"))).iter().map(entry_of);
        Part {
            document: Json::Object(document),
            secrets: secrets.collect(),
            backends: backends.collect(),
            name,
        }
    });
    Ok(Parts { issuers, tenants: tenants.collect(), warnings: loaded.warnings })
}

fn fields(node: Option<&Node>) -> &[Field] {
    match node.map(|node| &node.value) {
        Some(Value::Map(fields)) => fields,
        _ => &[],
    }
}

fn member<'n>(node: &'n Node, key: &str) -> Option<&'n Node> {
    fields(Some(node)).iter().find(|field| field.key == key).map(|field| &field.node)
}

fn entry_of(field: &Field) -> (String, Json) {
    (field.key.clone(), json(&field.node))
}

fn json(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(flag) => Json::Bool(*flag),
        Value::Number(text) => serde_json::from_str(text).unwrap_or_else(|_| Json::String(text.clone())),
        Value::Text(text) => Json::String(text.clone()),
        Value::List(nodes) => nodes.iter().map(json).collect(),
        Value::Map(fields) => Json::Object(fields.iter().map(entry_of).collect::<Map<_, _>>()),
    }
}
