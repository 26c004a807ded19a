#!/bin/bash
export LD_LIBRARY_PATH=/opt/libtorch/lib:$LD_LIBRARY_PATH
mpirun -x LD_LIBRARY_PATH -np 4 --mca pml ob1 --mca btl ^openib \
  /opt/lammps/bin/lmp -sf kk -k on g 1 -pk kokkos newton on neigh full -in water.in
