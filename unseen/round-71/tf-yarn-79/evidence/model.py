def gather_negatives(emb):
    out = [torch.empty_like(emb) for _ in range(dist.get_world_size())]
    dist.all_gather(out, emb.contiguous())
    return torch.cat(out)

def main_fn(model, trainloader, device, rank, tb_writer):
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(N_EPOCHS):
        for step, batch in enumerate(trainloader):
            emb = model(batch.to(device))
            logger.info(f"epoch {epoch} step {step} batch={tuple(batch.y.shape)} emb={tuple(emb.shape)}")
            loss = sampled_softmax(emb, gather_negatives(emb.detach()), batch.y)
            opt.zero_grad(); loss.backward(); opt.step()
