"""The language server: what `relaxpy check` finds, while programs are typed in an editor."""
