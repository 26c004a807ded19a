-- Tests the notes of job_submit.lua without Slurm: lua5.4 deploy/slurm/test_job_submit.lua

local folder = arg[0]:match("^(.*/)") or "./"
local said = {}
slurm = { SUCCESS = 0, log_user = function(form, note) table.insert(said, string.format(form, note)) end }
dofile(folder .. "job_submit.lua")

-- What users of a job are told.
local function told(job)
   said = {}
   assert(slurm_job_submit(job, {}, 0) == slurm.SUCCESS, "a job was refused")
   return table.concat(said, "\n")
end

local recorder, hang = "no Flight Recorder", "never ends by itself"
local gpus = "gres/gpu:8"
local plain = "#!/bin/sh\nsrun python train.py\n"
local asking = "#!/bin/sh\neval \"$(ringleader env --dir /shared)\"\nsrun python train.py\n"
local cases = {
   { "a job without the recorder", { tres_per_node = gpus, script = plain }, recorder },
   { "a script that asks for the settings", { tres_per_node = gpus, script = asking }, nil },
   { "srun, which has no script", { tres_per_node = gpus }, recorder },
   { "a script of another type", { tres_per_node = gpus, script = 7 }, recorder },
   { "a recorder that the user sets", { gres = "gpu:1", script = plain, environment = { TORCH_FR_BUFFER_SIZE = "2000" } }, nil },
   { "its name in older releases", { gres = "gpu:1", environment = { TORCH_NCCL_TRACE_BUFFER_SIZE = "2000" } }, nil },
   { "a hang that never ends", { gres = "gpu:1", script = asking, environment = { TORCH_NCCL_ASYNC_ERROR_HANDLING = "0" } }, hang },
   { "a job without GPUs", { script = plain }, nil },
}
for _, case in ipairs(cases) do
   local name, job, want = case[1], case[2], case[3]
   local text = told(job)
   if want == nil then
      assert(text == "", name .. ": " .. text)
   else
      assert(text:find(want, 1, true), name .. ": " .. text)
   end
   print("ok: " .. name)
end
