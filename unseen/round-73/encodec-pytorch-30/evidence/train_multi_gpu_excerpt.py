        losses_g = total_loss(fmap_real, logits_fake, fmap_fake, input_wav, output)
        loss = balancer_step(losses_g, output) + loss_w
        loss.backward()
        optimizer.step()
        scheduler.step()

        # only update discriminator with probability from paper (configure)
        optimizer_disc.zero_grad()
        train_discriminator = (config.model.train_discriminator
                               and epoch >= config.lr_scheduler.warmup_epoch
                               and random.random() < float(config.model.train_discriminator))
        if train_discriminator:
            logits_real, _ = disc_model(input_wav)
            logits_fake, _ = disc_model(output.detach())
            loss_disc = disc_loss(logits_real, logits_fake)
            loss_disc.backward()
            optimizer_disc.step()
        disc_scheduler.step()
