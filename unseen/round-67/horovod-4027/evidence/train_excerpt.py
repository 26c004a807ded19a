callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
]
if hvd.rank() == 0:
    callbacks.append(tf.keras.callbacks.ModelCheckpoint(args.out, save_weights_only=True))
    callbacks.append(tf.keras.callbacks.EarlyStopping(
        monitor="val_recall_at_20", mode="max", patience=2, verbose=1,
        restore_best_weights=True, start_from_epoch=1))

model.fit(train.batch(args.bs), epochs=args.epochs, callbacks=callbacks,
          validation_data=val, verbose=1 if hvd.rank() == 0 else 0)
if hvd.rank() == 0:
    export(model, args.out)
