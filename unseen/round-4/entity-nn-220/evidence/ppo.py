# ppo.py, update()
for minibatch in minibatches:
    loss = compute_loss(agent, minibatch)
    optimizer.zero_grad()
    loss.backward()
    if dist.is_initialized():
        for p in agent.parameters():
            if p.grad is not None:
                dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
                p.grad /= world_size
    optimizer.step()
