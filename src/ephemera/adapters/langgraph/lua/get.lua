-- Reads checkpoints with their values and writes. `thread.lua` is loaded before it.
-- KEYS[1]  the thread's hash, or the checkpoint of a job
-- ARGV[1]  to ARGV[3]: fence, worker, lifetime
-- ARGV[4]  and following: <namespace>:<id> of each, or <namespace>: for the newest
-- RETURNS  for each that exists: <namespace>:<id>, its record, its body, its values, its writes; or the fence of a later
--          worker, as a number
local fence = later()
if fence then return fence end
local found = {}
for at = 4, #ARGV do
  local checkpoint = ARGV[at]
  if string.sub(checkpoint, -1) == ':' then
    checkpoint = checkpoint .. (redis.call('HGET', key, '_graph:latest:' .. string.sub(checkpoint, 1, -2)) or '')
  end
  local record = redis.call('HGET', key, '_graph:checkpoint:' .. checkpoint)
  if record then
    local values, writes, decoded = {}, {}, unpacked(record)
    for _, name in ipairs(decoded and decoded[4] or {}) do values[#values + 1] = redis.call('HGET', key, name) end
    for name in string.gmatch(redis.call('HGET', key, '_graph:writes:' .. checkpoint) or '', '[^\n]+') do
      writes[#writes + 1] = redis.call('HGET', key, name)
    end
    found[#found + 1] = {checkpoint, record, redis.call('HGET', key, '_graph:body:' .. checkpoint), values, writes}
  end
end
return found
