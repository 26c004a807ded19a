# 2 GPUs, batch 10, 65 elements
def input_fn():
    ds = tf.data.Dataset.from_tensor_slices((X[:65], Y[:65]))
    return ds.batch(10, drop_remainder=DROP)
strategy = tf.contrib.distribute.MirroredStrategy(num_gpus=2)
est = tf.estimator.Estimator(model_fn, config=tf.estimator.RunConfig(train_distribute=strategy))
est.train(input_fn)
