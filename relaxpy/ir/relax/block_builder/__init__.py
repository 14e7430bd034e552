"""From expressions to normal form with struct info: `BlockBuilder` and what it rests on."""
