"""What an operator is: its record in the registry, its signature, and what rules share."""
