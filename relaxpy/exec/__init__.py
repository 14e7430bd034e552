"""From IR to running code: values, checks, the reference evaluator, kernels, executables."""
