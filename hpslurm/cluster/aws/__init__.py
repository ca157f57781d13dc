"""Looks at HyperPod, EC2 and CloudWatch."""
