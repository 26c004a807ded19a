n_samples = count_records(args.dataset)                    # 199680
dataset = tf.data.TFRecordDataset(files).map(parse, num_parallel_calls=16).shuffle(10000).batch(args.batch_size).prefetch(4)
print('size', hvd.size(), 'samples', n_samples, flush=True)

for epoch in range(args.epochs):
    t0 = time.time()
    for step, (images, labels) in enumerate(dataset.take(n_samples // hvd.size())):
        loss_value = training_step(images, labels, step == 0 and epoch == 0)
        if step % 100 == 0 and hvd.rank() == 0:
            report(step, loss_value)
    if hvd.rank() == 0:
        print('epoch %d done, steps %d, %.1f s' % (epoch, step + 1, time.time() - t0))
