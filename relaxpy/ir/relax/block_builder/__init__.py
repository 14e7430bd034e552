"""Normal form and struct info: `BlockBuilder`, and the modules that it consists of."""
