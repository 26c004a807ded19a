cat hosts
# 192.168.20.1
# 192.168.20.2
../../tools/launch.py -n 2 -s 2 -H hosts --launcher ssh \
   python train_imagenet.py --network inception-bn --gpus 0,1,2,3 --batch-size 128 \
   --data-dir /data/ilsvrc12 --kv-store dist_sync

# one machine alone, --kv-store device: 741 samples/sec
