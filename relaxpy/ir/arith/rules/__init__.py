"""How one kind of expression is bounded, simplified or decided, each by what an engine answers."""
