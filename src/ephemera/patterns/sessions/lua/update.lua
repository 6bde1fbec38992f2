-- Changes some fields of a session that its user's index lists; never revives one. Follows `json.lua`.
-- KEYS[1]  the session
-- KEYS[2]  the user's index
-- ARGV[1]  the session's id
-- ARGV[2]  the lifetime that it is extended to, in milliseconds; 0 when it does not slide
-- ARGV[3]  and on: the change, as `json.lua` takes it
-- RETURNS  1; 0 when there is no such session (any more), and nothing was written
local session, index, id, lifetime = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
if not redis.call('ZSCORE', index, id) or not change(session, 3) then return 0 end
if lifetime ~= '0' then
  local time = redis.call('TIME')
  redis.call('ZADD', index, 'XX', time[1] * 1000 + math.floor(time[2] / 1000) + lifetime, id)
  redis.call('PEXPIRE', session, lifetime)
  redis.call('PEXPIRE', index, lifetime, 'GT')
end
return 1
