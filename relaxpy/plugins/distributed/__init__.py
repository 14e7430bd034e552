"""Programs that several processes run together, which MPI has started."""
