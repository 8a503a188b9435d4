"""What outlives the process: the run file, saved posteriors, and how values are written without pickle."""
