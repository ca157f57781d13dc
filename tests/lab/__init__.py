"""A real Slurm cluster on this machine, for tests and for the demo."""
