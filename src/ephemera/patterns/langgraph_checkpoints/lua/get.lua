-- Reads checkpoints with their values and writes. `langgraph_thread.lua` stands before it.
-- KEYS[1]  the thread's hash, or the checkpoint of a job
-- ARGV[1]  to ARGV[3]: fence, worker, lifetime
-- ARGV[4]  and on: <namespace>:<id> of each, or <namespace>: for the newest
-- RETURNS  of each that is there: <namespace>:<id>, its record, its body, its values, its writes; or the fence of a later
--          worker, as a number
local fence = later()
if fence then return fence end
local found = {}
for at = 4, #ARGV do
  local place = ARGV[at]
  if string.sub(place, -1) == ':' then
    place = place .. (redis.call('HGET', key, '_graph:latest:' .. string.sub(place, 1, -2)) or '')
  end
  local record = redis.call('HGET', key, '_graph:checkpoint:' .. place)
  if record then
    local values, writes = {}, {}
    for _, name in ipairs(cmsgpack.unpack(record)[4]) do values[#values + 1] = redis.call('HGET', key, name) end
    for name in string.gmatch(redis.call('HGET', key, '_graph:writes:' .. place) or '', '[^\n]+') do
      writes[#writes + 1] = redis.call('HGET', key, name)
    end
    found[#found + 1] = {place, record, redis.call('HGET', key, '_graph:body:' .. place), values, writes}
  end
end
return found
