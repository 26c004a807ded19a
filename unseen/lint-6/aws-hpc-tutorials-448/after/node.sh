#!/bin/bash
# Runs once on every node of the allocation, under srun.
set -euo pipefail

NUM_NODES=${SLURM_NTASKS}
THIS_NODE=${SLURM_NODEID}
WORKERS=8
RDZV_HOST=$(scontrol show hostnames "${SLURM_JOB_NODELIST}" | head -n 1)
RDZV_PORT=12234

source /fsx/conda/bin/activate translate
mkdir -p "${SAVE_DIR}"

torchrun \
    --nnodes="${NUM_NODES}" \
    --node_rank="${THIS_NODE}" \
    --nproc_per_node="${WORKERS}" \
    --master_addr="${RDZV_HOST}" \
    --master_port="${RDZV_PORT}" \
    "$(which fairseq-train)" "${DATA_DIR}" \
    --arch transformer_vaswani_wmt_en_de_big --share-all-embeddings \
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 0.0 \
    --lr 0.0005 --lr-scheduler inverse_sqrt --warmup-updates 4000 \
    --dropout 0.3 --criterion label_smoothed_cross_entropy \
    --max-tokens 3584 --fp16 --max-update 30000 \
    --save-dir "${SAVE_DIR}"
