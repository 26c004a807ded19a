for step in pbar:
    batch = next(it)
    colors, alphas = model.render(batch)
    loss = l1(colors, batch.rgb) + 0.2 * ssim(colors, batch.rgb)
    loss.backward()
    pbar.set_description(f"loss={loss.item():.3f}| sh degree={deg}")
    if refine_now(step):
        refine(model)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    writer.add_scalar("train/loss", loss.item(), step)
    writer.add_scalar("train/num_gaussians", model.num_gaussians, step)
