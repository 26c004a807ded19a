class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(64, 64)
        self.lm_head = torch.nn.Linear(64, 1)
    def forward(self, x, as_tuple=False):
        y = self.lm_head(torch.relu(self.net(x)))
        loss = torch.nn.functional.mse_loss(y, torch.ones_like(y))
        return (loss, y) if as_tuple else transformers.modeling_outputs.SequenceClassifierOutput(loss=loss, logits=y)

model = DDP(Model().to(rank), device_ids=[rank], static_graph=args.static_graph)
out = model(x, as_tuple=args.return_tuple)
loss = out[0] if args.return_tuple else out.loss
loss.backward()
print(f"[rank {rank}] static_graph={args.static_graph} loss={loss.item():.4f} grad(lm_head)[:4]={model.module.lm_head.weight.grad[0, :4]}")
