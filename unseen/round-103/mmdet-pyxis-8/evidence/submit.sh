#!/bin/bash
#SBATCH -J mrcnn_r50
#SBATCH -N 2
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
#SBATCH -o slurm-%j.out

srun --container-image=registry.lab.internal/vision/mmdet:2.7-torch1.6 \
     --container-mounts=/raid/coco:/data/coco,$HOME/mmdetection:/mmdetection \
     --container-workdir=/mmdetection \
     python -u tools/train.py configs/mask_rcnn/mask_rcnn_r50_fpn_1x_coco.py \
         --work-dir work_dirs/mrcnn_r50 --launcher slurm
