"""Type inference of Relay: unification, type relations, generalisation."""
