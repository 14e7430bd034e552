"""Loop nests read from a kernel: statements, domains, accesses, bounds."""
