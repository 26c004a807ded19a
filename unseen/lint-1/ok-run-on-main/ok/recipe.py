import torch

from dist import run_on_main


def prepare(cfg, tokenizer, model):
    run_on_main(cfg.write_manifests, cfg.data)
    run_on_main(cfg.fetch, cfg.pretrained, post=lambda: model.load_state_dict(torch.load(cfg.pretrained)), post_on_main=True)
    if cfg.train_tokenizer:
        run_on_main(tokenizer.train, cfg.data, post=tokenizer.load)
