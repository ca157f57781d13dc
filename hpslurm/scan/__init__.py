"""Logs to a cause, a pipeline: read, prefix, match, collect, reason."""
