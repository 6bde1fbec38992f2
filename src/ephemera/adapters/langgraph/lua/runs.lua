-- Lists the runs of a thread's checkpoints. `thread.lua` is loaded before it.
-- KEYS[1]  the thread's hash
-- ARGV[1]  to ARGV[3]: fence, worker, lifetime
-- RETURNS  their ids, with duplicates
local found = {}
for _, ids in pairs(records()) do
  for _, record in pairs(ids) do
    if record[2] ~= '' then found[#found + 1] = record[2] end
  end
end
return found
