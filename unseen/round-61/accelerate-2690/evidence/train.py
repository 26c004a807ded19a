    # end of epoch
    if accelerator.is_main_process:
        unwrapped = accelerator.unwrap_model(model)
        state_dict = accelerator.get_state_dict(model)
        unwrapped.save_pretrained(
            os.path.join(out_dir, f"ep{epoch}"),
            is_main_process=accelerator.is_main_process,
            save_function=accelerator.save,
            state_dict=state_dict,
        )
        tokenizer.save_pretrained(os.path.join(out_dir, f"ep{epoch}"))
    else:
        accelerator.wait_for_everyone()
    model.train()
