strategy = tf.distribute.MirroredStrategy()
print("Number of devices:", strategy.num_replicas_in_sync)
BATCH = 64 * strategy.num_replicas_in_sync
train_ds = tf.data.Dataset.from_tensor_slices((x[:50000], y[:50000])).cache().shuffle(10000).batch(BATCH)
val_ds = tf.data.Dataset.from_tensor_slices((x[50000:], y[50000:])).batch(BATCH)
with strategy.scope():
    model = build_cnn()
    model.compile(loss="sparse_categorical_crossentropy", optimizer="adam", metrics=["accuracy"])
model.fit(train_ds, validation_data=val_ds, epochs=4)
