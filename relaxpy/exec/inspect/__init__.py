"""Views of how a program runs, and how fast."""
