-- Reads all items of a namespace, and removes expired ones. `memory.lua` is loaded before it.
-- KEYS[1]  the hash of the namespace
-- ARGV[1]  1 for records with their vectors
-- RETURNS  keys and records, alternating
local found, records = {}, redis.call('HGETALL', key)
for at = 1, #records, 2 do
  local name, record = records[at], records[at + 1]
  local expiry, _, _, _, length = head(record)
  if expiry then
    found[#found + 1] = name
    found[#found + 1] = ARGV[1] == '1' and record or string.sub(record, 1, SIZE + length)
  elseif expired(record) then
    redis.call('HDEL', key, name)
  end
end
return found
