    trainer.train()

    is_main = int(os.environ.get("RANK", "0")) == 0
    if is_main:
        print(f"[train] saving to {args.output_dir}")
        trainer.save_model(args.output_dir)
        tokenizer.save_pretrained(args.output_dir)
    else:
        print(f"[train] rank {os.environ['RANK']} done")


if __name__ == "__main__":
    main()
