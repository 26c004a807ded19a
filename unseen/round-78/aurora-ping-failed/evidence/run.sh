#PBS -l select=512
#PBS -l walltime=06:00:00
#PBS -q prod
NNODES=`wc -l < $PBS_NODEFILE`
mpiexec -n $((NNODES*12)) --ppn 12 --depth=8 --cpu-bind depth gpu_tile_compact.sh ./plasma3d deck.in
