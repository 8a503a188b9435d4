"""What people see: live progress, summaries and pictures."""
