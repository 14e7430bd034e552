"""What runs at once and in which order: parts, dependences, schedule, memory."""
