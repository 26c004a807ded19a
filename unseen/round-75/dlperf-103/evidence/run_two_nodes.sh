NODE_IPS='wk11, wk9'
python3 run_pretraining.py \
  --gpu_num_per_node=8 \
  --num_nodes=2 \
  --node_ips="$NODE_IPS" \
  --learning_rate=1e-4 \
  --batch_size_per_device=32 \
  --iter_num=200 \
  --data_dir=/ssd/wiki_seq_len_128 2>&1 | tee bert_2n8g.log
