"""Plans of kernels: statements, dependences, schedules, and memory."""
