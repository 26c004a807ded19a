# the loop in training.py
    for epoch in range(n_epochs):
        losses_t = train(rank, model, train_loader, optimizer, ssl)

        if world_size > 1:
            if rank == 0:
                losses_v = validation_run(rank, model, valid_loader)   # forward under no_grad
                scheduler_step(losses_v)
            dist.barrier()
