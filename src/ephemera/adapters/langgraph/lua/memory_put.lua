-- Stores and deletes items of a namespace, in one step. `memory.lua` is loaded before it.
-- KEYS[1]  the hash of the namespace
-- ARGV[1]  the lifetime of an item without TTL, in milliseconds
-- ARGV[2]  how many items a namespace may have
-- ARGV[3]  and following, four for each item: its key; its TTL in milliseconds, 0 for none, or `delete`; its value;
--          its vectors
-- RETURNS  0, or how many items there would be if that is too many; nothing is changed then
local limit, added, counted = tonumber(ARGV[2]), 0, {}
for at = 3, #ARGV, 4 do
  if ARGV[at + 1] ~= 'delete' and not counted[ARGV[at]] and redis.call('HEXISTS', key, ARGV[at]) == 0 then
    counted[ARGV[at]] = true
    added = added + 1
  end
end
if added > 0 and redis.call('HLEN', key) + added > limit then
  local records = redis.call('HGETALL', key)
  for at = 1, #records, 2 do
    if expired(records[at + 1]) then redis.call('HDEL', key, records[at]) end
  end
  local total = redis.call('HLEN', key) + added
  if total > limit then return total end
end
local latest = 0
for at = 3, #ARGV, 4 do
  if ARGV[at + 1] == 'delete' then
    redis.call('HDEL', key, ARGV[at])
  else
    local ttl = tonumber(ARGV[at + 1])
    local expiry = now + (ttl > 0 and ttl or tonumber(ARGV[1]))
    local _, _, created = head(redis.call('HGET', key, ARGV[at]))
    local record = struct.pack(HEAD, expiry, ttl, created or micros, micros, #ARGV[at + 2])
    redis.call('HSET', key, ARGV[at], record .. ARGV[at + 2] .. ARGV[at + 3])
    latest = math.max(latest, expiry)
  end
end
if latest > 0 then live_until(latest) end
return 0
