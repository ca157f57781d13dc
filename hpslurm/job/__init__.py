"""Probes that look at what a job shows: its environment, its bandwidth, its logs."""
