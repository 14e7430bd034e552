"""Loop nests of a kernel as they are read: statements, domains, accesses, bounds."""
