"""A small stand-in for AWS on 127.0.0.1, for tests and the demo.

It speaks the protocols that boto3 speaks (JSON 1.1 for sagemaker and logs, the EC2
query with XML, sts), so nothing in hpslurm or boto3 is patched: boto3 finds it
through AWS_ENDPOINT_URL. What it answers comes from a scenario file. It knows only
operations that read; anything else is refused and fails the test.
"""

from tests.aws_server.server import Server, serve

__all__ = ["Server", "serve"]
