def train_dataset(files, batch_size):
    ds = tf.data.TFRecordDataset(files).map(parse, num_parallel_calls=8)
    ds = ds.batch(batch_size)                      # 297 batches in all
    ds = ds.shard(hvd.size(), hvd.rank())
    return ds.prefetch(2)

model.fit(train_dataset(files, 64), epochs=3, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
