"""Names of TVM in `ir` and `arith`."""
