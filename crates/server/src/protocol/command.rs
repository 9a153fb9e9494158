//! The names of commands, and the set of permitted ones.

use device::names::hint;

use super::meta::MetaCommand;
use super::{Request, StoreMode};

/// The commands that can be permitted. `quit` always is.
pub const COMMANDS: [&str; 26] = [
    "get",
    "gets",
    "gat",
    "gats",
    "set",
    "add",
    "replace",
    "append",
    "prepend",
    "cas",
    "incr",
    "decr",
    "delete",
    "touch",
    "flush_all",
    "stats",
    "version",
    "verbosity",
    "slabs",
    "shutdown",
    "mg",
    "ms",
    "md",
    "ma",
    "mn",
    "me",
];

/// Commands that clients may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedCommands(Vec<&'static str>);

impl AllowedCommands {
    /// The commands with these names.
    ///
    /// # Errors
    /// If there is no command of a name.
    pub fn new<S: AsRef<str>>(names: &[S]) -> Result<Self, String> {
        let find = |name: &S| {
            let name = name.as_ref();
            COMMANDS.iter().copied().find(|&known| known == name).ok_or_else(|| {
                let hint = hint(name, COMMANDS.into_iter());
                format!("unknown command `{name}`; {hint}commands: {}", COMMANDS.join(", "))
            })
        };
        names.iter().map(find).collect::<Result<_, _>>().map(Self)
    }

    /// Whether a request may be executed.
    #[must_use]
    pub fn allows(&self, request: &Request<'_>) -> bool {
        matches!(request, Request::Quit) || self.0.contains(&request.command())
    }
}

impl Request<'_> {
    /// The name of the command.
    #[must_use]
    pub fn command(&self) -> &'static str {
        match self {
            Self::Get { with_cas, touch, .. } => match (touch.is_some(), with_cas) {
                (false, false) => "get",
                (false, true) => "gets",
                (true, false) => "gat",
                (true, true) => "gats",
            },
            Self::Store(store) => match store.mode {
                StoreMode::Set => "set",
                StoreMode::Add => "add",
                StoreMode::Replace => "replace",
                StoreMode::Append => "append",
                StoreMode::Prepend => "prepend",
                StoreMode::Cas => "cas",
            },
            Self::Arithmetic { is_decrement: false, .. } => "incr",
            Self::Arithmetic { is_decrement: true, .. } => "decr",
            Self::Delete { .. } => "delete",
            Self::Touch { .. } => "touch",
            Self::FlushAll { .. } => "flush_all",
            Self::Stats { .. } => "stats",
            Self::Version => "version",
            Self::Verbosity { .. } => "verbosity",
            Self::Quit => "quit",
            Self::Slabs => "slabs",
            Self::Shutdown => "shutdown",
            Self::Meta(meta) => match meta.command {
                MetaCommand::Get => "mg",
                MetaCommand::Set { .. } => "ms",
                MetaCommand::Delete => "md",
                MetaCommand::Arithmetic { .. } => "ma",
            },
            Self::MetaNoop => "mn",
            Self::MetaDebug(_) => "me",
        }
    }

    /// Whether the client asks for no reply.
    #[must_use]
    pub fn noreply(&self) -> bool {
        match self {
            Self::Store(store) => store.noreply,
            Self::Arithmetic { noreply, .. }
            | Self::Delete { noreply, .. }
            | Self::Touch { noreply, .. }
            | Self::FlushAll { noreply, .. }
            | Self::Verbosity { noreply } => *noreply,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::parse;

    #[test]
    fn allowed_commands_are_found_by_name_and_others_refused_with_a_hint() {
        let allowed = AllowedCommands::new(&["get", "ms"]).unwrap();
        for (line, is_allowed) in [
            (&b"get a"[..], true),
            (b"gets a", false),
            (b"ms a 1", true),
            (b"mg a", false),
            (b"flush_all", false),
            (b"stats", false),
            (b"quit", true),
        ] {
            assert_eq!(allowed.allows(&parse(line).unwrap()), is_allowed, "{line:?}");
        }
        let error = AllowedCommands::new(&["get", "flush_al"]).unwrap_err();
        assert!(error.starts_with("unknown command `flush_al`; did you mean `flush_all`?"), "{error}");
    }
}
