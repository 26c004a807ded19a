-- A part of job_submit.lua: warns users at submission about settings that would make a failure undiagnosable. It sets nothing.
-- JobSubmitPlugins=lua; slurm_job_submit returns slurm.SUCCESS in any case.

local function wants_gpus(job)
   for _, field in ipairs({ "tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket", "gres" }) do
      local value = job[field]
      if value ~= nil and string.find(value, "gpu") then return true end
   end
   return false
end

local function environment(job)
   local out = {}
   if job.environment ~= nil then
      for _, name in ipairs({ "NCCL_DEBUG", "TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_ASYNC_ERROR_HANDLING" }) do
         out[name] = job.environment[name]
      end
   end
   return out
end

-- Whether the batch script itself asks for the settings: eval "$(ringleader env)". srun and salloc have no script.
local function asks_for_settings(job)
   return type(job.script) == "string" and string.find(job.script, "ringleader env", 1, true) ~= nil
end

function ringleader_advice(job)
   local notes = {}
   if not wants_gpus(job) then return notes end
   local env = environment(job)
   if env.TORCH_NCCL_ASYNC_ERROR_HANDLING == "0" then
      table.insert(notes, "TORCH_NCCL_ASYNC_ERROR_HANDLING=0: a hang of this job never ends by itself")
   end
   -- Where task-prolog.sh is installed every task gets the recorder: remove these three lines.
   if env.TORCH_FR_BUFFER_SIZE == nil and env.TORCH_NCCL_TRACE_BUFFER_SIZE == nil and not asks_for_settings(job) then
      table.insert(notes, "no Flight Recorder: eval \"$(ringleader env)\" in the batch script makes a failure diagnosable")
   end
   return notes
end

function slurm_job_submit(job_desc, part_list, submit_uid)
   local ok, notes = pcall(ringleader_advice, job_desc)
   if ok then
      for _, note in ipairs(notes) do slurm.log_user("ringleader: %s", note) end
   end
   return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
   return slurm.SUCCESS
end
