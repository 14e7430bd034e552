"""The text of Relay: reading of both formats, and printing."""
