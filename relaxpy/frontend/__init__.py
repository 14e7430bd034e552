"""Importers: models of other systems, as Relax modules."""
