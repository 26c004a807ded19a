python scripts/prepare_slimpajama.py --source_path /data/zh_mix --tokenizer_path /data/tok_zh_bpe --destination_path /data/zh_packed --split train --percentage 1.0
# tok_zh_bpe/tokenizer.json: "vocab": 55296 entries
