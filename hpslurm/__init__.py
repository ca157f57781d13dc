"""hpslurm: why NCCL training fails on a SageMaker HyperPod Slurm cluster."""

__version__ = "0.1.0"
