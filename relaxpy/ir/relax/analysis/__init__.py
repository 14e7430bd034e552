"""Questions about Relax programs: what is free, bound, called, pure, recursive, well-formed."""
