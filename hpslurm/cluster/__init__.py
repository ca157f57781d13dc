"""Looks from the controller: Slurm nodes, HyperPod, and the two joined."""
