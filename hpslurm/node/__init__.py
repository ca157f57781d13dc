"""Probes that look at this machine, one module a subject."""
