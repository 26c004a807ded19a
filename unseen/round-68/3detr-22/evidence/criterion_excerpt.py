    def single_output_forward(self, outputs, targets):
        gious = generalized_box3d_iou(
            outputs["box_corners"], targets["gt_box_corners"], targets["nactual_gt"],
            rotated_boxes=torch.any(targets["gt_box_angles"] > 0).item(), needs_grad=False)
        outputs["gious"] = gious
        losses = {}
        if targets["num_boxes_replica"] > 0:
            assignments = self.matcher(outputs, targets)
            for k in self.loss_functions:
                losses.update(self.loss_functions[k](outputs, targets, assignments))
        final_loss = 0
        for k in self.loss_weight_dict:
            if self.loss_weight_dict[k] > 0 and k.replace("_weight", "") in losses:
                final_loss += losses[k.replace("_weight", "")] * self.loss_weight_dict[k]
        return final_loss, losses

# engine.py
        loss, loss_dict = criterion(outputs, batch_data_label)
        if torch.is_tensor(loss) and loss.requires_grad:
            loss.backward()
        optimizer.step()
