"""Relay, the predecessor of Relax: types, expressions, modules, inference and passes."""
