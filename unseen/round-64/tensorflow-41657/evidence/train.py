strategy = tf.distribute.MirroredStrategy()
print('Number of devices: {}'.format(strategy.num_replicas_in_sync))

BATCH = 64
print('train: %d windows, global batch %d' % (len(x_train), BATCH))          # 24977 = 390 * 64 + 17
train_ds = tf.data.Dataset.from_tensor_slices((x_train, y_train)).shuffle(8192).batch(BATCH).prefetch(2)

def loss_fn(y_true, y_pred):
    per_row = tf.keras.backend.binary_crossentropy(tf.cast(y_true, tf.float32), y_pred)
    rows = tf.cast(tf.shape(y_pred)[0], tf.float32)
    return tf.reduce_sum(per_row) / rows

with strategy.scope():
    model = build_model(x_train.shape[1:])
    model.compile(optimizer=tf.keras.optimizers.Adam(1e-3), loss=loss_fn, metrics=['accuracy'])

# what does the last global batch look like on each card?
for i, (x, y) in enumerate(strategy.experimental_distribute_dataset(train_ds)):
    if i == 390:
        print([t.shape for t in strategy.experimental_local_results(x)])
        # -> [TensorShape([17, 128, 6]), TensorShape([0, 128, 6])]

model.fit(train_ds, epochs=args.epochs)
