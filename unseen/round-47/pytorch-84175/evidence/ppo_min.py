for step in range(5):
    query_tensors = torch.randint(0, 50257, (4, 12)).to(accelerator.device)
    if step == 0:
        outputs = model(query_tensors)          # needed, else model.generate raises
    response = generate(model, query_tensors)
    input_ids = torch.cat([query_tensors, response], dim=1)
    with torch.no_grad():
        logits, _, v = model(input_ids)
    logits, _, vpred = model(input_ids)
    vf_loss = ((vpred - returns) ** 2).mean()
    accelerator.backward(vf_loss)
    optimizer.step(); optimizer.zero_grad()
