"""A run in words."""
