"""The reader of `R.function`: from statements to bindings."""
