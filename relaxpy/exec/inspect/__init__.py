"""What shows how a program runs, and how fast."""
