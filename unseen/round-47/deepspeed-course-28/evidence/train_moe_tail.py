    for step in range(args.steps):
        loss = model_engine(xb, yb)
        model_engine.backward(loss)
        model_engine.step()
        if is_main and (step % 100 == 0 or step == args.steps - 1):
            print(f"step {step:3d}  loss {loss.item():.4f}")
    if not is_main:
        return
    model_engine.eval()
    with torch.no_grad():
        logits = model_engine(xe.unsqueeze(0))
    print("eval accuracy", (logits.argmax(-1) == ye).float().mean().item())
