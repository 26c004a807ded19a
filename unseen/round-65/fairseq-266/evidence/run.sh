python train.py /data/wmt_paracrawl/bin -s zh -t en \
  --arch transformer_wmt_en_de_big --share-decoder-input-output-embed \
  --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 0.0 --lr-scheduler inverse_sqrt --warmup-updates 4000 \
  --lr 0.0005 --min-lr 1e-09 --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
  --max-tokens 3584 --fp16 --update-freq 16 --save-dir ckpt/big
