    for iter, data in enumerate(progress_bar):
        try:
            imgs = data['img'].cuda(local_rank, non_blocking=True)
            annot = data['annot'].cuda(local_rank, non_blocking=True)
            seg_annot = data['segmentation'].cuda(local_rank, non_blocking=True)

            optimizer.zero_grad(set_to_none=True)
            with torch.cuda.amp.autocast(enabled=opt.amp):
                cls_loss, reg_loss, seg_loss, _, _, _, _ = model(imgs, annot, seg_annot,
                                                                 obj_list=params.obj_list)
                loss = cls_loss.mean() + reg_loss.mean() + seg_loss.mean()

            if loss == 0 or not torch.isfinite(loss):
                print(f'skip batch {data["filename"][0]} ... loss {loss}')
                continue

            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            log_step(local_rank, step, epoch, iter, cls_loss, reg_loss, seg_loss, loss)
