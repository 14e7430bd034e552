"""What runs beside generated code: values, their checks, registered functions, operators."""
