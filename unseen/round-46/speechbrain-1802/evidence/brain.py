def fit_batch(self, batch):
    should_step = self.step % self.grad_accumulation_factor == 0
    outputs = self.compute_forward(batch, Stage.TRAIN)
    loss = self.compute_objectives(outputs, batch, Stage.TRAIN)
    with self.no_sync(not should_step):
        (loss / self.grad_accumulation_factor).backward()
    if should_step:
        self.optimizer.step()
        self.optimizer.zero_grad()
