"""Programs as text: the namespaces I, R, T, the parser and the printer."""
