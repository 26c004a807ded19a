strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy(
    communication=tf.distribute.experimental.CollectiveCommunication.NCCL)
GLOBAL_BATCH = 128 * strategy.num_replicas_in_sync

def dataset_fn():
    files = sorted(tf.io.gfile.glob(FLAGS.data + "/part-*.tfrecord"))   # 37 files, sharded by FILE
    ds = tf.data.TFRecordDataset(files, num_parallel_reads=8)
    return ds.map(parse, 16).shuffle(8192).batch(GLOBAL_BATCH).prefetch(4)

train_dataset = strategy.experimental_distribute_dataset(dataset_fn())

with strategy.scope():
    model, opt = build_model(), tf.keras.optimizers.SGD(0.1, 0.9)

    for epoch in range(FLAGS.epochs):
        n = 0
        for batch in train_dataset:
            loss = train_step(batch)       # @tf.function, strategy.experimental_run_v2 + reduce
            n += 1
            if n % 100 == 0:
                print("epoch %d step %d loss %.4f" % (epoch, n, loss.numpy()), flush=True)
        print("epoch %d done, %d steps" % (epoch, n), flush=True)
