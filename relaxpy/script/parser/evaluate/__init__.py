"""The values of expressions in a program text. Only `user_calls.py` calls functions it names."""
