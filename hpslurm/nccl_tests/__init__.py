"""nccl-tests: judge a run against the expected bandwidth, and search for what is slow."""
