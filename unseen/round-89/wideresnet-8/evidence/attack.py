def pgd(model, x, y, eps, alpha, steps):
    adv = x.detach() + torch.empty_like(x).uniform_(-eps, eps)
    for _ in range(steps):
        adv.requires_grad_()
        with torch.enable_grad():
            loss = F.cross_entropy(model(adv), y)
        loss.backward()
        adv = adv.detach() + alpha * adv.grad.sign()
        adv = torch.min(torch.max(adv, x - eps), x + eps).clamp(0, 1)
    return adv

# train step
adv = pgd(model, x, y, 8/255, 2/255, 10)      # model = DDP(WideResNet(...))
out = model(adv)
loss = criterion(out, y)
optimizer.zero_grad()
loss.backward()
optimizer.step()
