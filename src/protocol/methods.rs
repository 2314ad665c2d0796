//! The methods that are served, and the mirrors that each method has.

/// The method that opens a session of the handshake era. No modern client has it.
pub const INITIALIZE: &str = "initialize";

/// A method that this gateway serves to a modern client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// `server/discover`
    Discover,
    /// `tools/list`
    ToolsList,
    /// `tools/call`
    ToolsCall,
}

impl Method {
    /// Every served method.
    pub const ALL: [Method; 3] = [Method::Discover, Method::ToolsList, Method::ToolsCall];

    /// Step 15: the served method of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name() == name)
    }

    /// The name on the wire, also used as a metric label.
    pub fn name(self) -> &'static str {
        match self {
            Method::Discover => "server/discover",
            Method::ToolsList => "tools/list",
            Method::ToolsCall => "tools/call",
        }
    }
}

/// The member of `params` that `Mcp-Name` mirrors, served method or not.
///
/// spec: streamable-http, Standard Request Headers
pub fn mirrored_member(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}
