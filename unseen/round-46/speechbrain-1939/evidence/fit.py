# part of my fit(), runs on each GPU
for epoch in epoch_counter:
    self._fit_train(train_set=train_set, epoch=epoch, enable=enable)
    self._fit_valid(valid_set=valid_set, epoch=epoch, enable=enable)
    if epoch_counter.should_stop(current=epoch, current_metric=self.valid_per):
        epoch_counter.current = epoch_counter.limit  # skipping unpromising epochs
