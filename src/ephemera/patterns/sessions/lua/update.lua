-- Changes some fields of a session that its user's index vouches for; never brings one back. Follows `json.lua`.
-- KEYS[1]  the session
-- KEYS[2]  the user's index
-- ARGV[1]  the session's id
-- ARGV[2]  the life that it slides to, in milliseconds; 0 when it does not slide
-- ARGV[3]  and on: the change, as `json.lua` takes it
-- RETURNS  1; 0 when there is no such session (any more), and nothing was written
local session, index, id, life = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
if not redis.call('ZSCORE', index, id) or not change(session, 3) then return 0 end
if life ~= '0' then
  local time = redis.call('TIME')
  redis.call('ZADD', index, 'XX', time[1] * 1000 + math.floor(time[2] / 1000) + life, id)
  redis.call('PEXPIRE', session, life)
  redis.call('PEXPIRE', index, life, 'GT')
end
return 1
