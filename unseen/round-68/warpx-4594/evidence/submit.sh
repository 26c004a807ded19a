sbatch --nodes 1 --ntasks-per-node 8 --cpus-per-task 12 --gres=gpu:8 --gpu-bind verbose,closest \
       --mem-per-gpu 48000 --no-requeue --job-name warpx --partition gpu --time 7-0:00:00 \
       -D ./ -o %j.out.log -e %j.err.log ./run-file.sh
