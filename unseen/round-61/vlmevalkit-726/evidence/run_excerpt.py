        for dataset_name in args.data:
            ...
            model = infer_data_job(model, work_dir=pred_root, model_name=model_name, dataset=dataset, verbose=args.verbose)

            # Evaluation
            if rank == 0:
                if args.mode == 'infer':
                    continue
                eval_results = dataset.evaluate(result_file, **judge_kwargs)
                logger.info(f'The evaluation of model {model_name} x dataset {dataset_name} has finished!')

            if world_size > 1:
                dist.barrier()
