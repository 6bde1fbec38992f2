-- Takes items off the front of a list if they are still there, as they were when somebody looked at them.
-- KEYS[1]  the list
-- ARGV[1]  rule: renew (start the life anew), keep (start it only if the list has no end); others change no life
-- ARGV[2]  the life in milliseconds
-- ARGV[3]  how many items were asked for
-- ARGV[4]  and on: the items that were at the front
-- RETURNS  nil when they were taken; else as many as were asked for of those that are at the front now, and all stay
local key, rule, items = KEYS[1], ARGV[1], #ARGV - 3
local front = redis.call('LRANGE', key, 0, ARGV[3] - 1)
for place = 1, items do
  if front[place] ~= ARGV[place + 3] then return front end
end
redis.call('LTRIM', key, items, -1)
if rule == 'renew' or (rule == 'keep' and redis.call('PTTL', key) == -1) then redis.call('PEXPIRE', key, ARGV[2]) end
return false
