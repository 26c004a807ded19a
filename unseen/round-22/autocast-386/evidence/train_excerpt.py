def run_training(cfg, trainer, model, datamodule):
    trainer.fit(model, datamodule=datamodule)
    if trainer.is_global_zero:
        log.info("best checkpoint: %s", trainer.checkpoint_callback.best_model_path)
        # plain copy of the last weights next to the config
        trainer.save_checkpoint(Path(cfg.run_dir) / "encoder_last.ckpt")
    trainer.strategy.barrier("checkpoint-alias-finalize")
    _link_aliases(cfg)
