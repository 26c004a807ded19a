    def train_one_step(self, training_batch):                                # excerpt, line 361
        training_batch.total_loss = 0.0
        for _ in range(self.training_args.gradient_accumulation_steps):
            training_batch = self._get_next_batch(training_batch)
            training_batch = self._prepare_dit_inputs(training_batch)
            training_batch = self._transformer_forward_and_compute_loss(training_batch)
            avg_loss = training_batch.loss.detach().clone()
            dist.all_reduce(avg_loss, op=dist.ReduceOp.AVG, group=self.sp_group)
            training_batch.total_loss += avg_loss.item()
        self.clip_grad_norm(training_batch)
        self.optimizer.step()

    def _get_next_batch(self, training_batch):                               # line 298
        batch = next(self.train_loader_iter)
        dev = get_local_torch_device()
        training_batch.latents = batch["vae_latent"].to(dev, dtype=torch.bfloat16)
        training_batch.encoder_hidden_states = batch["text_embedding"].to(dev, dtype=torch.bfloat16)
        training_batch.encoder_attention_mask = batch["text_attention_mask"].to(dev, dtype=torch.bfloat16)
        return training_batch
