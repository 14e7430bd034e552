"""The passes over Relax programs, each in a module that is named after it."""
