            # Checkpointing
            if completed_steps % config.checkpoint_save_frequency == 0 and completed_steps > 0:
                if accelerator.is_main_process:
                    accelerator.save_state(os.path.join(config.output_dir, f"steps_{completed_steps}"))
                    summary_data = {"steps": completed_steps, "train_loss": total_loss / config.checkpoint_save_frequency}
                    with open(os.path.join(config.output_dir, "summary.jsonl"), "a") as f:
                        f.write(json.dumps(summary_data) + "\n")
