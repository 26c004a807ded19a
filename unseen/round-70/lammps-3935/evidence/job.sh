#!/bin/bash
#flux: -N 1
#flux: -q pbatch
#flux: -t 20m
module load rocmcc/5.6.0 cray-mpich/8.1.27
INSTALL_DIR=/usr/workspace/otero3/lammps-2Aug2023/build/bin
flux run -N1 -n4 -c8 -g1 \
  ${INSTALL_DIR}/lmp \
  -k on g 4 -sf kk -pk kokkos gpu/aware on neigh full comm device newton on \
  -v x 8 -v y 8 -v z 8 -v steps 600 -in in.lj -nocite -log log.lammps
