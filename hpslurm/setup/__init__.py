"""Is hpslurm installed right, and how it is installed."""
