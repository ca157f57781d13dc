"""Logs to a cause: read, prefix, match, reason."""
