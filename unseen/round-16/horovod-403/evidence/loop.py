for epoch in range(FLAGS.epochs):
    train_one_epoch(sess, train_op, epoch)
    if hvd.rank() == 0:
        saver.save(sess, FLAGS.out, global_step=epoch)
        dice, hd = evaluate(sess, val_volumes)      # full volumes, sliding window
        tf.logging.info("val dice %.4f hausdorff %.2f", dice, hd)
