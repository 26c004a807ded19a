        with tf.Session(config=config) as sess:
            sess.run(tf.global_variables_initializer())
            sess.run(hvd.broadcast_global_variables(0))
            if is_chief and checkpoint_dir and len(os.listdir(checkpoint_dir)) > 0:
                print("restoring from checkpoint: %s" % checkpoint_dir)
                ckpt = tf.train.get_checkpoint_state(checkpoint_dir)
                if ckpt and ckpt.model_checkpoint_path:
                    saver = tf.train.Saver(max_to_keep=10, sharded=True)
                    saver.restore(sess, ckpt.model_checkpoint_path)
                    print("restored from checkpoint: %s" % ckpt.model_checkpoint_path)
            else:
                print("session ready")
            for step in range(start, FLAGS.steps):
                sess.run(train_op)
