#!/bin/bash
#SBATCH -N 2
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
#SBATCH --exclusive
# closed box, periodic in all directions: nothing may leave or enter
OPT="-d 1 1 8 -g 128 128 64 -s 2000 -p 5 --periodic 1 1 1 --e_macroParticlesCount.period 200 --i_macroParticlesCount.period 200"
for i in 1 2 3 4; do
  srun ./bin/picongpu $OPT $1 > out.$i 2> err.$i
  cp simOutput/e_macroParticlesCount.dat e_count$1.$i
done
