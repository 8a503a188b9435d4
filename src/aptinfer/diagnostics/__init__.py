"""Is the posterior right? Each file answers with one kind of evidence."""
