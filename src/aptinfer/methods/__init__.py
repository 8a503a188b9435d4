"""Methods: with what loss to learn, and what to propose next."""
