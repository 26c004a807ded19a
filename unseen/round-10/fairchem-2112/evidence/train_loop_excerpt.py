# runner, every rank, every step
            for k, v in losses.items():                       # 12 heads
                metrics[k] = distutils.reduce(v.detach(), average=True).item()
                metrics[k + "_mae"] = distutils.reduce(mae[k], average=True).item()
                metrics[k + "_n"] = distutils.all_reduce(n[k]).item()
            grad_norm = torch.nn.utils.clip_grad_norm_(params, 100.0)
            metrics["grad_norm"] = grad_norm.item()
            if not math.isfinite(metrics["loss"]): raise ValueError
            ...
            if step % 50 == 0 and distutils.is_master(): logger.log(metrics)
