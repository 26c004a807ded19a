def train_func(config):
    model = ray.train.torch.prepare_model(build_model(config))
    opt = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    loader = ray.train.torch.prepare_data_loader(build_loader(config))
    ctx = ray.train.get_context()
    for step, batch in enumerate(cycle(loader)):
        loss = model(**batch).loss
        loss.backward()
        opt.step(); opt.zero_grad()
        if ctx.get_world_rank() == 0:
            if step % 100 == 0:
                print(f"step {step:4d} loss {loss.item():.4f}")
            if step % 500 == 499:
                with tempfile.TemporaryDirectory() as d:
                    print(f"step {step:4d} loss {loss.item():.4f}, writing checkpoint to {d}")
                    torch.save(model.module.state_dict(), os.path.join(d, "model.pt"))
                    ray.train.report({"loss": loss.item()}, checkpoint=ray.train.Checkpoint.from_directory(d))
