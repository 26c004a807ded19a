#!/bin/bash
mpirun -np 3 -H st1,st2,st3 dlio_benchmark workload=unet3d_h100 \
  ++workload.dataset.num_files_train=145 ++workload.dataset.num_samples_per_file=1 \
  ++workload.reader.batch_size=16 ++workload.reader.read_threads=4 ++workload.reader.data_loader=pytorch \
  ++workload.train.epochs=5 ++workload.train.computation_time=0.323 ++workload.dataset.data_folder=/mnt/lfs/unet3d
