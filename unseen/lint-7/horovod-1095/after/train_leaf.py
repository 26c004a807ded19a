import argparse

import horovod.tensorflow.keras as hvd
import tensorflow as tf

from leaf_data import read_records


def datasets(pattern, batch):
    files = tf.data.Dataset.list_files(pattern, shuffle=False)
    return read_records(files.shard(hvd.size(), hvd.rank())).batch(batch, drop_remainder=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--steps", type=int, default=400)
    args = parser.parse_args()

    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")

    train = datasets(f"{args.data}/train-*.rec", args.batch).repeat()
    valid = datasets(f"{args.data}/valid-*.rec", args.batch).repeat()

    model = tf.keras.applications.EfficientNetB0(weights=None, classes=38)
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.05 * hvd.size(), momentum=0.9))
    model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])

    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        tf.keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.3, patience=4),
    ]
    if hvd.rank() == 0:
        callbacks.append(tf.keras.callbacks.ModelCheckpoint("leaf.weights.h5", save_weights_only=True))

    model.fit(
        train,
        steps_per_epoch=args.steps,
        validation_data=valid,
        validation_steps=40,
        epochs=args.epochs,
        callbacks=callbacks,
        verbose=1 if hvd.rank() == 0 else 0,
    )


if __name__ == "__main__":
    main()
