fsdp_params = dict(flatten_parameters=True, reshard_after_forward=False, mixed_precision=True)
with enable_wrap(wrapper_cls=FSDP, process_group=group, **fsdp_params):
    layers = [wrap(BertBlock(hidden, heads)) for _ in range(8)]
net = FSDP(nn.Sequential(*layers).to(rank), **fsdp_params)
