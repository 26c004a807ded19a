local_rank = int(os.getenv("LOCAL_RANK", "0"))
world_size = int(os.getenv("WORLD_SIZE", "1"))
torch.cuda.set_device(local_rank)
deepspeed.init_distributed()
ds_config = {
    "fp16": {"enabled": False},
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    "train_batch_size": world_size, "train_micro_batch_size_per_gpu": 1,
}
dschf = HfDeepSpeedConfig(ds_config)
model = T5ForConditionalGeneration.from_pretrained("google/t5-v1_1-large")
engine = deepspeed.initialize(model=model, config_params=ds_config)[0]
engine.module.eval()
inputs = tok(texts[local_rank], return_tensors="pt").input_ids.to(local_rank)
with torch.no_grad():
    out = engine.module.generate(inputs, do_sample=True, max_length=128)
print(f"rank{local_rank}: {out.shape[1]} tokens: {tok.decode(out[0])}")
