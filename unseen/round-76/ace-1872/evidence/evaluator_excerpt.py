183         logs = aggregator.get_wandb()
184         for key, v in logs.items():
185             ...
188         wandb = WandB.get_instance()
189         wandb.log(logs, step=0)
190
191         if self.dist.is_root():
192             # one netcdf per run
193             ds = aggregator.get_dataset()
194             ds = ds.rename({k: k.replace("/", "_") for k in ds.data_vars})
195             ds.to_netcdf(f"{self.experiment_dir}/evaluator_maps_and_metrics.nc")
