"""The definition of operators: their records in the registry, signatures, and helpers of rules."""
