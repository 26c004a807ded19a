dir=exp/conformer
INIT_FILE=$dir/ddp_init
init_method=file://$(readlink -f $INIT_FILE)
echo "$0: init method is $init_method"
num_gpus=6
for ((i = 0; i < $num_gpus; ++i)); do
{
  gpu_id=$(echo $CUDA_VISIBLE_DEVICES | cut -d',' -f$[$i+1])
  python wenet/bin/train.py --gpu $gpu_id --config conf/train_conformer.yaml --model_dir $dir --ddp.init_method $init_method --ddp.world_size $num_gpus --ddp.rank $i --ddp.dist_backend nccl --num_workers 4
} &
done
wait
