"""What people see: findings as text, the page, explanations, progress."""
