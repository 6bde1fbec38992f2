-- Removes items from the front of a list if they are still the ones that were read before.
-- KEYS[1]  the list
-- ARGV[1]  rule: renew (restart the TTL), keep (set it only if the list has none); others leave it
-- ARGV[2]  the TTL in milliseconds
-- ARGV[3]  how many items were requested
-- ARGV[4]  and on: the items that were at the front
-- RETURNS  nil when they were removed; else the items at the front now, up to the requested number, and none is removed
local key, rule, items = KEYS[1], ARGV[1], #ARGV - 3
local front = redis.call('LRANGE', key, 0, ARGV[3] - 1)
for position = 1, items do
  if front[position] ~= ARGV[position + 3] then return front end
end
redis.call('LTRIM', key, items, -1)
if rule == 'renew' or (rule == 'keep' and redis.call('PTTL', key) == -1) then redis.call('PEXPIRE', key, ARGV[2]) end
return false
