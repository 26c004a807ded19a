accelerator = Accelerator()
model, optimizer, train_dataloader, val_dataloader = accelerator.prepare(
    model, optimizer, train_dataloader, val_dataloader)

total_steps = args.epochs * len(train_dataloader)
progress_bar = tqdm(range(args.epochs * len(train_dataloader)), total=total_steps,
                    disable=not accelerator.is_main_process)

best_eval_loss = float('inf')
for epoch in range(args.epochs):
    for batch in train_dataloader:
        model.train()
        loss = model(**batch).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        progress_bar.update(1)

        # validation in the middle of the epoch
        if progress_bar.n > 10 and progress_bar.n % args.eval_steps == 0:
            model.eval()
            losses = []
            for val_batch in val_dataloader:
                # <- stuck here, never comes back
                with torch.no_grad():
                    out = model(**val_batch)
                losses.append(accelerator.gather_for_metrics(out.loss.repeat(args.val_bs)))
            eval_loss = torch.cat(losses).mean()
            if eval_loss < best_eval_loss:
                best_eval_loss = eval_loss
                accelerator.save_state(args.out)
