"""Worker processes of the speed comparison, one per library."""
