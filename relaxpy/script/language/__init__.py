"""What `I`, `R` and `T` mean: records, annotations, directives, and the builder of kernels."""
