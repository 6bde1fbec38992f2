-- Ends all sessions of a user, and all sign-ins in progress: without the index, none of them is valid.
-- KEYS[1]  the user's index
-- ARGV[1]  the id of a session to keep, or ''
-- RETURNS  the ids of the ended sessions, whose keys may now be removed
local index, keep = KEYS[1], ARGV[1]
local ends = keep ~= '' and redis.call('ZSCORE', index, keep)
local ended = {}
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, id in ipairs(redis.call('ZRANGE', index, now, '(+inf', 'BYSCORE')) do
  if id ~= keep then ended[#ended + 1] = id end
end
redis.call('UNLINK', index)
if ends then
  redis.call('ZADD', index, ends, keep)
  redis.call('PEXPIREAT', index, ends)
end
return ended
