-- Reads items of a namespace. `memory.lua` is loaded before it.
-- KEYS[1]  the hash of the namespace
-- ARGV[1]  1 to start their TTLs again
-- ARGV[2]  and following: the items' keys
-- RETURNS  their records without vectors, or nil for an item that does not exist
local found = {}
for at = 2, #ARGV do
  local record = redis.call('HGET', key, ARGV[at])
  local expiry, _, _, _, length = head(record)
  if not expiry then
    found[at - 1] = false
  else
    if ARGV[1] == '1' then record = renew(ARGV[at], record) end
    found[at - 1] = string.sub(record, 1, SIZE + length)
  end
end
return found
