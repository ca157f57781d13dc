#!/bin/bash
# A rank of a training job that has no GPU: what it prints is what PyTorch and NCCL print. With more STEPS than one it
# trains until $LAB/work/gpu-is-gone is there; then the GPU of n2 is gone, and every rank says how that looked to it.
rank=$SLURM_PROCID
node=$SLURMD_NODENAME
echo "$node:$$:$$ [0] NCCL INFO comm 0x5581 rank $rank nranks $SLURM_NTASKS cudaDev 0 nvmlDev 0 busId b9000 - Init COMPLETE"
echo "[rank$rank] step 100 loss 2.31"
[ -z "$STEPS" ] && exit 0
for _ in {1..300}; do
    [ -e "$LAB/work/gpu-is-gone" ] && break
    sleep 0.1
done
if [ "$node" = n2 ]; then
    echo "[rank$rank]: torch.AcceleratorError: CUDA error: unspecified launch failure" >&2
    exit 1
fi
sleep 0.3
echo "$node:$$:$$ [0] NCCL WARN [Service thread] Accept failed Resource temporarily unavailable"
echo "$node:$$:$$ [0] NCCL WARN socketProgress: Connection closed by remote peer n2<43210>"
echo "[rank$rank]:[E ProcessGroupNCCL.cpp:2057] [PG ID 0 PG GUID 0(default_pg) Rank $rank] Process group watchdog thread \
terminated with exception: NCCL error: remote process exited or there was a network error, NCCL version 2.27.7" >&2
echo "[rank$rank]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:93, remote process exited or there \
was a network error, NCCL version 2.27.7" >&2
exit 1
