from accelerate import Accelerator, notebook_launcher
from accelerate.utils import gather_object

def grade(inputs):
    distributed_state = Accelerator()
    model = AutoModelForCausalLM.from_pretrained(MODEL).eval().to(distributed_state.device)
    txt_out = []
    with distributed_state.split_between_processes(inputs, apply_padding=False) as part:
        for i in range(0, len(part["input_ids"]), 10):
            with torch.no_grad():
                res = model.generate(part["input_ids"][i:i + 10].to(distributed_state.device), max_new_tokens=5)
            txt_out += tok.batch_decode(res[:, -5:])
    if distributed_state.is_main_process:
        rows = gather_object(txt_out)
        print(rows[0], rows[1])

notebook_launcher(grade, (prompts,), num_processes=2)
