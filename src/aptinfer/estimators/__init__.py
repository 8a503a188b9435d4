"""Conditional densities q(value | condition): call an estimator with a condition, get a density."""
