"""What everything stands on: findings, results, policy, records, and small tools for text and values."""
