"""The run-time library of generated code: values, checks, registered functions, operators."""
