"""Compiled programs as tables: how they are saved, and how functions are made of them."""
